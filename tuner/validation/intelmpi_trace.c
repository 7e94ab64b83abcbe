/* Record which functions of Intel MPI's libmpi a collective enters, and with which numbers the
 * library chose them. Preloaded into every rank.
 *
 * The library's calls among its own functions cannot be interposed, but its symbol table names them
 * all. So the first byte of each algorithm's function becomes a breakpoint: entering it raises
 * SIGTRAP, whose handler records the function, restores the byte and resumes. Asking what was
 * entered sets all breakpoints again. This is for x86-64 only, where a breakpoint is the byte 0xCC.
 *
 * Several presets enter the same functions, but with other numbers. The numbers pass through three
 * functions that choose: for a call as a whole, then for its parts inside a node and between nodes.
 * Each takes the call, which begins with the number of its collective, and a choice: the number of
 * an algorithm and four parameters (disassembled: 2021.18). These functions begin with a one-byte
 * instruction that the handler executes itself, so their breakpoints stay and no choice is missed.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "breakpoints are written for x86-64"
#endif

enum { BREAKPOINT = 0xCC, PUSH_RBP = 0x55 };
enum { MOST = 4096, LONGEST = 1 << 16, LONGEST_CHOICE = 256, PAGE = 4096 };

static struct {
    unsigned char *at;      /* the first byte of the function */
    unsigned char byte;     /* the original first byte */
    const char *name;
    char chooses;
    volatile char armed, entered;
} functions[MOST];
static int known = -1; /* number of functions found; -1: not searched yet */
static char said[LONGEST], choices[LONGEST];
static size_t chosen; /* length of `choices` */

static int ends_with(const char *name, const char *end)
{
    size_t all = strlen(name), part = strlen(end);
    return all >= part && strcmp(name + all - part, end) == 0;
}

/* Return whether a function is an algorithm: `..._intra_<name>`, or one of the shared-memory
 * collectives. Functions that only check whether one may run, or count, are not. */
static int is_algorithm(const char *name)
{
    if (strncmp(name, "MPIDI_SHMGR_Gather", 18) == 0 || strncmp(name, "MPIDI_SHMGR_Release", 19) == 0)
        return 1;
    if (strncmp(name, "MPIR_", 5) != 0 && strncmp(name, "MPIDI_", 6) != 0)
        return 0;
    if (strncmp(name, "MPIR_I", 6) == 0 || !strstr(name, "_intra_"))
        return 0;
    return !ends_with(name, "_check") && !ends_with(name, "_cnt") && !ends_with(name, "_auto");
}

static int is_choosing(const char *name)
{
    return strcmp(name, "MPIDI_coll_invoke") == 0 || strcmp(name, "MPIDI_POSIX_coll_select") == 0
        || strcmp(name, "MPIDI_OFI_coll_select") == 0;
}

/* Append `<name>(<collective>:<algorithm>,<four parameters>)` to `choices`, without the algorithm
 * and the parameters where nothing was chosen beforehand. */
static void note_choice(const char *name, const int *call, const int *choice)
{
    char *end = choices + chosen;
    if (chosen + LONGEST_CHOICE > sizeof choices)
        return;
    if (choice)
        chosen += snprintf(end, LONGEST_CHOICE, "%s(%d:%d,%d,%d,%d,%d) ", name, call[0], choice[0],
                           choice[1], choice[2], choice[3], choice[4]);
    else
        chosen += snprintf(end, LONGEST_CHOICE, "%s(%d) ", name, call[0]);
}

static void push_rbp(greg_t *registers)
{
    registers[REG_RSP] -= sizeof(greg_t);
    *(greg_t *)registers[REG_RSP] = registers[REG_RBP];
}

static void enter(int signal, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    greg_t *next = &registers[REG_RIP];
    (void)signal, (void)info;
    for (int i = 0; i < known; i++)
        if ((greg_t)(functions[i].at + 1) == *next) {
            if (functions[i].chooses) {
                note_choice(functions[i].name, (const int *)registers[REG_RDI],
                            (const int *)registers[REG_RSI]);
                push_rbp(registers);
                return;
            }
            *functions[i].at = functions[i].byte;
            functions[i].armed = 0;
            functions[i].entered = 1;
            *next -= 1;
            return;
        }
}

/* Add every traced function in the symbol table of a file that is loaded at `base`. */
static void read_symbols(const char *file, size_t size, ElfW(Addr) base)
{
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Shdr *section = (const void *)(file + head->e_shoff);
    if (head->e_shoff + (size_t)head->e_shnum * sizeof *section > size)
        return;
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbol = (const void *)(file + section[i].sh_offset);
        const char *names = file + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol && known < MOST; k++) {
            const char *name = names + symbol[k].st_name;
            if (ELF64_ST_TYPE(symbol[k].st_info) != STT_FUNC || !symbol[k].st_value)
                continue;
            unsigned char *at = (unsigned char *)base + symbol[k].st_value;
            if (!is_algorithm(name) && !(is_choosing(name) && *at == PUSH_RBP))
                continue;
            functions[known].at = at;
            functions[known].byte = *at;
            functions[known].chooses = is_choosing(name);
            functions[known++].name = name;
        }
    }
}

static void open_code(const struct dl_phdr_info *library)
{
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        uintptr_t begin = (library->dlpi_addr + part->p_vaddr) & -(uintptr_t)PAGE;
        uintptr_t end = library->dlpi_addr + part->p_vaddr + part->p_memsz;
        mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE | PROT_EXEC);
    }
}

static int find_library(struct dl_phdr_info *library, size_t size, void *data)
{
    struct stat about;
    (void)size, (void)data;
    if (!strstr(library->dlpi_name, "libmpi.so"))
        return 0;
    int file = open(library->dlpi_name, O_RDONLY);
    if (file < 0 || fstat(file, &about) != 0)
        return 0;
    /* stays mapped, since it holds the names */
    const char *content = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (content == MAP_FAILED)
        return 0;
    open_code(library);
    read_symbols(content, about.st_size, library->dlpi_addr);
    return 1;
}

/* Return the functions entered and the choices made since the last call, each followed by a space,
 * and clear them. */
const char *tuner_entered(void)
{
    size_t used = 0;
    if (known < 0) {
        struct sigaction action = {.sa_sigaction = enter, .sa_flags = SA_SIGINFO | SA_NODEFER};
        known = 0;
        dl_iterate_phdr(find_library, NULL);
        sigaction(SIGTRAP, &action, NULL);
    }
    for (int i = 0; i < known; i++) {
        size_t length = strlen(functions[i].name);
        if (functions[i].entered && used + length + 2 < sizeof said) {
            memcpy(said + used, functions[i].name, length);
            used += length;
            said[used++] = ' ';
        }
        functions[i].entered = 0;
        if (!functions[i].armed) {
            functions[i].armed = 1;
            *functions[i].at = BREAKPOINT;
        }
    }
    if (used + chosen < sizeof said) {
        memcpy(said + used, choices, chosen);
        used += chosen;
    }
    chosen = 0;
    said[used] = '\0';
    return said;
}
