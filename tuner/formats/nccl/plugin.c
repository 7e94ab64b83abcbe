/* A tuner plugin for NCCL and RCCL that follows the rules of a tuning table.
 *
 * NCCL_TUNER_PLUGIN names the compiled library; the rules are in the file rules.csv beside it,
 * which `tuner nccl install` writes. Where no rule matches a call, NCCL decides as it does without
 * a plugin. The same holds in any case of doubt: the plugin always loads, never fails and never ends
 * a program. Programs may also ask the library for each call (tuner_nccl.h).
 *
 * The structures below are those that NCCL looks up. Source: src/include/plugin/tuner/tuner_v2.h
 * to tuner_v7.h of NVIDIA/nccl (v2 came with NCCL 2.21, v3 2.22, v4 2.24, v5 2.28, v6 2.30, v7 after
 * 2.32.3; commit 2449986f); RCCL has the same up to v6. Version 7 has the calls of 6, and constants of
 * one more generation of GPUs, which the plugin does not read. Version 1 (NCCL 2.19) has no
 * communicator in its calls, and is not supported.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- What NCCL declares ---------------------------------------------------------------------- */

enum { NCCL_SUCCESS = 0 };                                         /* ncclResult_t */
enum { LOG_WARN = 2, LOG_INFO = 3 };                               /* ncclDebugLogLevel */
enum { LOG_INIT = 1, LOG_TUNING = 64, LOG_ENV = 128 };             /* flags: kinds of messages */
enum { BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLREDUCE, COLLECTIVES };     /* ncclFunc_t */
enum { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT, ALGORITHMS };
enum { LL, LL128, SIMPLE, PROTOCOLS };

typedef void (*logger_t)(int level, unsigned long flags, const char *file, int line,
                         const char *format, ...);

struct nvl_domains { /* for most machines these are the nodes */
    int domains, fewest_ranks, most_ranks;
};

struct tuner_v2 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, logger_t log, void **context);
    int (*decide)(void *context, int collective, size_t nbytes, int collnet, int nvls,
                  int pipelined, int *algorithm, int *protocol, int *channels);
    int (*destroy)(void *context);
};

struct tuner_v3 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, logger_t log, void **context);
    int (*decide)(void *context, int collective, size_t nbytes, int pipelined, float **costs,
                  int algorithms, int protocols, int *channels);
    int (*destroy)(void *context);
};

struct tuner_v4 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, logger_t log, void **context);
    int (*decide)(void *context, int collective, size_t nbytes, int pipelined, float **costs,
                  int algorithms, int protocols, int registered, int *channels);
    int (*destroy)(void *context);
};

struct tuner_v5 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger_t log,
                struct nvl_domains *domains, void *constants);
    int (*decide)(void *context, int collective, size_t nbytes, int pipelined, float **costs,
                  int algorithms, int protocols, int registered, int *channels);
    int (*finalize)(void *context);
};

struct tuner_v6 {
    struct tuner_v5 as_v5;
    int (*chunk_size)(void *context, int collective, size_t nbytes, int algorithm, int protocol,
                      int channels, size_t *size); /* NULL: NCCL's own */
};

/* ---- The rules ------------------------------------------------------------------------------- */

static const char NAME[] = "tuner";
static const char FILE_NAME[] = "rules.csv";
static const char HEADER[] = "# tuner nccl rules 1: ";
enum { LARGEST_FILE = 16 << 20, MOST_ROWS = 100000, MOST_CHANNELS = 64 };

static const char *const COLLECTIVE_NAMES[COLLECTIVES] = {
    "broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char *const ALGORITHM_NAMES[ALGORITHMS] = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
static const char *const PROTOCOL_NAMES[PROTOCOLS] = {"ll", "ll128", "simple"};

/* The algorithms that NCCL has for each collective, one bit each. */
static const unsigned OFFERED[COLLECTIVES] = {
    [BROADCAST] = 1u << RING,
    [REDUCE] = 1u << RING,
    [ALLGATHER] = 1u << RING | 1u << COLLNET_DIRECT | 1u << NVLS | 1u << PAT,
    [REDUCESCATTER] = 1u << RING | 1u << COLLNET_DIRECT | 1u << NVLS | 1u << PAT,
    [ALLREDUCE] = (1u << ALGORITHMS) - 1 - (1u << PAT),
};

/* Calls from `first` to `last` bytes of the whole buffer; 0 channels: NCCL's own number. */
struct rule {
    uint64_t first, last;
    int8_t algorithm, protocol;
    int16_t channels;
};

struct rules { /* ascending, without overlap */
    struct rule *rule;
    size_t count, room;
};

struct communicator { /* the context of a communicator, which NCCL keeps for us */
    uint64_t ranks, nodes;
    bool blind; /* version 2, where NCCL does not say which algorithms are available */
    struct rules rules[COLLECTIVES];
};

struct row { /* one line of the file */
    int collective;
    uint64_t nodes, ranks;
    struct rule rule;
};

struct text { /* the unread rest of the file, and what is wrong with it */
    const char *at, *end;
    const char *flaw;
    unsigned long line;
};

static void say(logger_t log, int level, const char *format, ...) {
    char message[PATH_MAX + 256];
    va_list values;
    if (log == NULL) return;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    log(level, LOG_INIT | LOG_TUNING | LOG_ENV, "plugin.c", 0, "TUNER/tuner: %s", message);
}

/* Return whether this process has not logged a message yet: one is enough. */
static bool first_to_speak(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    return !atomic_flag_test_and_set(&said);
}

/* ---- Reading the file ------------------------------------------------------------------------ */

static bool take(struct text *text, const char *expected) {
    const size_t length = strlen(expected);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, expected, length) != 0)
        return false;
    text->at += length;
    return true;
}

/* Read a plain number of at most `most` in this base. */
static bool take_number(struct text *text, unsigned base, uint64_t most, uint64_t *value) {
    static const char digits[] = "0123456789abcdef";
    const char *begin = text->at;
    uint64_t total = 0;
    for (; text->at < text->end; text->at++) {
        const char *digit = memchr(digits, *text->at, base);
        if (digit == NULL) break;
        const uint64_t figure = (uint64_t)(digit - digits);
        if (total > (most - figure) / base) return false;
        total = total * base + figure;
    }
    *value = total;
    return text->at > begin;
}

/* Read one of `names` and the comma after it; return its index, -1 for another word. */
static int take_name(struct text *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(names[i]);
        const bool fits = (size_t)(text->end - text->at) > length;
        if (fits && text->at[length] == ',' && take(text, names[i])) {
            text->at++;
            return i;
        }
    }
    return -1;
}

static bool take_channels(struct text *text, int16_t *channels) {
    uint64_t number = 0;
    if (!take(text, "-1") && (!take_number(text, 10, MOST_CHANNELS, &number) || number == 0))
        return false;
    *channels = (int16_t)number;
    return true;
}

/* Read a line `collective,first,last,algorithm,protocol,channels,nodes,ranks`. */
static bool take_row(struct text *text, struct row *row) {
    struct rule *rule = &row->rule;
    row->collective = take_name(text, COLLECTIVE_NAMES, COLLECTIVES);
    if (row->collective < 0 || !take_number(text, 10, UINT64_MAX, &rule->first) ||
        !take(text, ",") || !take_number(text, 10, UINT64_MAX, &rule->last) || !take(text, ","))
        return false;
    rule->algorithm = (int8_t)take_name(text, ALGORITHM_NAMES, ALGORITHMS);
    rule->protocol = (int8_t)take_name(text, PROTOCOL_NAMES, PROTOCOLS);
    return rule->algorithm >= 0 && rule->protocol >= 0 && take_channels(text, &rule->channels) &&
           take(text, ",") && take_number(text, 10, INT_MAX, &row->nodes) && take(text, ",") &&
           take_number(text, 10, INT_MAX, &row->ranks) && take(text, "\n");
}

static bool is_offered(const struct row *row) {
    const int algorithm = row->rule.algorithm;
    const bool any_protocol = algorithm == RING || algorithm == TREE;
    return OFFERED[row->collective] >> algorithm & 1 &&
           (any_protocol || row->rule.protocol == SIMPLE);
}

/* Return whether a rule may set channels. NCCL limits them to those that a communicator has, but not
 * for CollNet, which NVLS on several nodes uses (scheduleCollTasksToPlan in src/enqueue.cc). */
static bool may_say_channels(const struct communicator *own, int algorithm) {
    return algorithm != COLLNET_DIRECT && algorithm != COLLNET_CHAIN &&
           (algorithm != NVLS || own->nodes == 1);
}

/* Return whether every communicator has this algorithm: version 2 obeys without checking. */
static bool is_always_there(const struct rule *rule) {
    return (rule->algorithm == RING || rule->algorithm == TREE) && rule->protocol != LL128;
}

static bool append(struct communicator *own, const struct row *row) {
    struct rules *rules = &own->rules[row->collective];
    if (own->blind && !is_always_there(&row->rule)) return true;
    if (rules->count == rules->room) {
        const size_t room = rules->room ? 2 * rules->room : 16;
        struct rule *grown = realloc(rules->rule, room * sizeof *grown);
        if (grown == NULL) return false;
        rules->rule = grown;
        rules->room = room;
    }
    struct rule *added = &rules->rule[rules->count++];
    *added = row->rule;
    if (!may_say_channels(own, added->algorithm)) added->channels = 0;
    return true;
}

/* Keep a rule if it is for this communicator; return what is wrong with it, NULL for nothing. */
static const char *keep(struct communicator *own, const struct row *row) {
    const struct rules *rules = &own->rules[row->collective];
    if (row->rule.first > row->rule.last) return "ends below its first size";
    if (!is_offered(row)) return "names what NCCL does not have";
    if (row->nodes != own->nodes || row->ranks != own->ranks) return NULL;
    if (rules->count && row->rule.first <= rules->rule[rules->count - 1].last)
        return "begins below the end of the rule before";
    return append(own, row) ? NULL : "finds no memory";
}

static uint64_t fnv1a(const char *at, const char *end) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; at < end; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

/* Read the first line, which says how many rows follow, and the digest of all that follows. */
static bool take_header(struct text *text, uint64_t *rows, uint64_t *digest) {
    text->flaw = "was not written by `tuner nccl install`";
    if (!take(text, HEADER) || !take_number(text, 10, MOST_ROWS, rows) ||
        !take(text, " rows, fnv1a64 ") || !take_number(text, 16, UINT64_MAX, digest) ||
        !take(text, "\n"))
        return false;
    text->flaw = "is damaged, or was changed by hand";
    return fnv1a(text->at, text->end) == *digest;
}

/* Read all rows and keep those for this communicator; `rows` and `digest` are those of the file. */
static bool take_rules(struct text *text, struct communicator *own, uint64_t *rows,
                       uint64_t *digest) {
    uint64_t seen = 0;
    text->line = 1;
    if (!take_header(text, rows, digest)) return false;
    while (text->at < text->end) {
        struct row row = {0};
        text->line++;
        if (*text->at == '#') {
            const char *newline = memchr(text->at, '\n', (size_t)(text->end - text->at));
            text->at = newline ? newline + 1 : text->end;
            continue;
        }
        text->flaw = "has a line that is no rule";
        if (!take_row(text, &row)) return false;
        seen++;
        text->flaw = keep(own, &row);
        if (text->flaw != NULL) return false;
    }
    text->flaw = "has another number of rules than it says";
    return seen == *rows;
}

/* Return the file's content, NULL with a reason. A pipe has no size, and is not waited for. */
static char *read_file(const char *path, size_t *length, const char **flaw) {
    struct stat found;
    char *content = NULL;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *flaw = "cannot be read";
    if (file < 0) return NULL;
    if (fstat(file, &found) == 0 && found.st_size <= LARGEST_FILE)
        content = malloc((size_t)found.st_size);
    for (*length = 0; content != NULL && *length < (size_t)found.st_size;) {
        const ssize_t got = read(file, content + *length, (size_t)found.st_size - *length);
        if (got > 0) *length += (size_t)got;
        else if (got == 0 || errno != EINTR) break;
    }
    close(file);
    *flaw = "is larger than 16 MiB, or finds no memory";
    return content;
}

/* Write the path of the rules, which are beside this library, to `path`. */
static bool find_file(char *path, size_t room) {
    Dl_info own;
    if (dladdr((const void *)&HEADER, &own) == 0 || own.dli_fname == NULL) return false;
    const char *slash = strrchr(own.dli_fname, '/');
    const int folder = slash ? (int)(slash + 1 - own.dli_fname) : 0;
    const int needed = snprintf(path, room, "%.*s%s", folder, own.dli_fname, FILE_NAME);
    return needed > 0 && (size_t)needed < room;
}

/* ---- What NCCL calls ------------------------------------------------------------------------- */

static int forget(void *context) {
    struct communicator *own = context;
    if (own == NULL) return NCCL_SUCCESS;
    for (int i = 0; i < COLLECTIVES; i++) free(own->rules[i].rule);
    free(own);
    return NCCL_SUCCESS;
}

static const char *forced(void) {
    static const char *const names[] = {"NCCL_ALGO", "NCCL_PROTO"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL) return names[i];
    return NULL;
}

/* Read the rules for one communicator from this file; return whether the file is sound. */
static bool load(const char *path, struct communicator *own, logger_t log) {
    uint64_t rows = 0, digest = 0;
    size_t length = 0, kept = 0;
    struct text text = {0};
    char *content = read_file(path, &length, &text.flaw);
    bool sound = false;
    if (content != NULL) {
        text.at = content;
        text.end = content + length;
        sound = take_rules(&text, own, &rows, &digest);
    }
    free(content);
    for (int i = 0; i < COLLECTIVES; i++) kept += own->rules[i].count;
    if (sound)
        say(log, LOG_INFO,
            "%zu of %" PRIu64 " rules (fnv1a64 %016" PRIx64 ") are followed on %" PRIu64
            " ranks, %" PRIu64 " nodes%s",
            kept, rows, digest, own->ranks, own->nodes,
            own->blind ? ", of those for ring and tree in ll and simple, without channels" : "");
    else if (first_to_speak()) {
        char place[32] = ""; /* empty where no line was read */
        if (text.line > 0) snprintf(place, sizeof place, ":%lu", text.line);
        say(log, LOG_WARN, "%s%s %s: NCCL decides itself on this rank", path, place, text.flaw);
    }
    return sound;
}

/* Return the context of a communicator; NULL, with a message, to leave everything to NCCL. */
static struct communicator *begin(size_t ranks, size_t nodes, bool blind, logger_t log) {
    char path[PATH_MAX];
    const char *variable = forced();
    if (variable != NULL) {
        if (first_to_speak()) say(log, LOG_INFO, "%s is set: no rules are followed", variable);
        return NULL;
    }
    struct communicator *own = calloc(1, sizeof *own);
    if (own == NULL || !find_file(path, sizeof path)) {
        if (first_to_speak())
            say(log, LOG_WARN, "no path or no memory for rules: NCCL decides itself on this rank");
        free(own);
        return NULL;
    }
    own->ranks = ranks;
    own->nodes = nodes;
    own->blind = blind;
    if (load(path, own, log)) return own;
    forget(own);
    return NULL;
}

/* Return the rule for a call by bisection, without a branch that a processor would mispredict. */
static const struct rule *find(const struct communicator *own, int collective, uint64_t nbytes) {
    if (own == NULL || collective < 0 || collective >= COLLECTIVES) return NULL;
    const struct rule *rule = own->rules[collective].rule;
    size_t left = own->rules[collective].count;
    if (left == 0) return NULL;
    while (left > 1) { /* the rule is one of `left` from `rule` on */
        const size_t half = left / 2;
        rule += rule[half].first <= nbytes ? half : 0;
        left -= half;
    }
    return rule->first <= nbytes && nbytes <= rule->last ? rule : NULL;
}

static int init_v2(size_t ranks, size_t nodes, logger_t log, void **context) {
    *context = begin(ranks, nodes, true, log);
    return NCCL_SUCCESS;
}

static int init_v3(size_t ranks, size_t nodes, logger_t log, void **context) {
    *context = begin(ranks, nodes, false, log);
    return NCCL_SUCCESS;
}

static int init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger_t log,
                   struct nvl_domains *domains, void *constants) {
    (void)communicator, (void)constants;
    *context = NULL;
    if (domains != NULL && domains->fewest_ranks != domains->most_ranks)
        say(log, LOG_INFO, "%zu ranks are spread unevenly over %zu nodes: no rules are for them",
            ranks, nodes);
    else
        *context = begin(ranks, nodes, false, log);
    return NCCL_SUCCESS;
}

/* Channels are not set: NCCL would not limit them to those available. */
static int decide_v2(void *context, int collective, size_t nbytes, int collnet, int nvls,
                     int pipelined, int *algorithm, int *protocol, int *channels) {
    (void)collnet, (void)nvls, (void)pipelined, (void)channels;
    const struct rule *rule = find(context, collective, nbytes);
    if (rule != NULL) {
        *algorithm = rule->algorithm;
        *protocol = rule->protocol;
    }
    return NCCL_SUCCESS;
}

/* `costs` is an array of `algorithms` x `protocols` times in microseconds. Negative entries cannot
 * run and are left unchanged. */
static int decide_v5(void *context, int collective, size_t nbytes, int pipelined, float **costs,
                     int algorithms, int protocols, int registered, int *channels) {
    (void)pipelined, (void)registered;
    const struct rule *rule = find(context, collective, nbytes);
    if (rule == NULL || rule->algorithm >= algorithms || rule->protocol >= protocols)
        return NCCL_SUCCESS;
    float *cost = (float *)(void *)costs + rule->algorithm * protocols + rule->protocol;
    if (!(*cost >= 0.0f)) return NCCL_SUCCESS;
    *cost = 0.0f;
    if (rule->channels > 0) *channels = rule->channels;
    return NCCL_SUCCESS;
}

static int decide_v3(void *context, int collective, size_t nbytes, int pipelined, float **costs,
                     int algorithms, int protocols, int *channels) {
    return decide_v5(context, collective, nbytes, pipelined, costs, algorithms, protocols, 0,
                     channels);
}

#define EXPORTED __attribute__((visibility("default")))

/* ---- What programs call, through tuner_nccl.h ------------------------------------------------ */

/* How ncclCollConfig_t selects an algorithm: names are prefixes, + joins conditions and ^ excludes.
 * Source: src/config/algorithm_registry.cc and algorithm_parser.cc of NVIDIA/nccl 2.31. */
static const char *const SELECTIONS[ALGORITHMS][PROTOCOLS] = {
    [TREE] = {"TREE_LL+^TREE_LL128", "TREE_LL128", "TREE_SIMPLE"},
    [RING] = {"RING_LL+^RING_LL128", "RING_LL128", "RING_SIMPLE"},
    [COLLNET_DIRECT][SIMPLE] = "COLLNET_DIRECT_SIMPLE",
    [COLLNET_CHAIN][SIMPLE] = "COLLNET_CHAIN_SIMPLE",
    [NVLS][SIMPLE] = "NVLS_SIMPLE",
    [NVLS_TREE][SIMPLE] = "NVLSTREE_SIMPLE",
    [PAT][SIMPLE] = "PAT_SIMPLE",
};

struct followed { /* is never freed, since calls of other threads may be looking at it */
    _Atomic(const void *) handle; /* of a communicator of the program; NULL: free for another */
    struct communicator *own;
    struct followed *next;
};

static _Atomic(struct followed *) newest;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER; /* held where the list is changed */

static struct followed *followed_of(const void *handle) {
    struct followed *at = atomic_load_explicit(&newest, memory_order_acquire);
    while (at != NULL && atomic_load_explicit(&at->handle, memory_order_acquire) != handle)
        at = at->next;
    return at;
}

/* Print warnings, and with NCCL_DEBUG=INFO all messages: there is no logger of NCCL. */
static void print_message(int level, unsigned long flags, const char *file, int line,
                          const char *format, ...) {
    va_list values;
    const char *debug = getenv("NCCL_DEBUG");
    (void)flags, (void)file, (void)line;
    if (level > LOG_WARN && (debug == NULL || strcmp(debug, "INFO") != 0)) return;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

EXPORTED void tuner_nccl_forget(const void *handle) {
    pthread_mutex_lock(&changing);
    struct followed *known = handle ? followed_of(handle) : NULL;
    if (known != NULL) {
        atomic_store_explicit(&known->handle, NULL, memory_order_release);
        forget(known->own);
    }
    pthread_mutex_unlock(&changing);
}

EXPORTED int tuner_nccl_follow_ranks(const void *handle, int ranks, int nodes) {
    int kept = 0;
    tuner_nccl_forget(handle);
    struct communicator *own = begin((size_t)ranks, (size_t)nodes, false, print_message);
    if (own == NULL) return -1;
    for (int i = 0; i < COLLECTIVES; i++) kept += (int)own->rules[i].count;
    pthread_mutex_lock(&changing);
    struct followed *place = followed_of(NULL);
    if (place == NULL && (place = calloc(1, sizeof *place)) != NULL) {
        place->next = atomic_load_explicit(&newest, memory_order_relaxed);
        atomic_store_explicit(&newest, place, memory_order_release);
    }
    if (place != NULL) {
        place->own = own;
        atomic_store_explicit(&place->handle, handle, memory_order_release);
    }
    pthread_mutex_unlock(&changing);
    if (place == NULL) forget(own);
    return place == NULL ? -1 : kept;
}

EXPORTED const char *tuner_nccl_select(const void *handle, int collective, size_t nbytes,
                                       int *channels) {
    const struct followed *known = handle ? followed_of(handle) : NULL;
    const struct rule *rule = find(known ? known->own : NULL, collective, nbytes);
    if (rule == NULL) return NULL;
    *channels = rule->channels;
    return SELECTIONS[rule->algorithm][rule->protocol];
}

/* ---- What NCCL looks up ---------------------------------------------------------------------- */

EXPORTED const struct tuner_v2 ncclTunerPlugin_v2 = {NAME, init_v2, decide_v2, forget};
EXPORTED const struct tuner_v3 ncclTunerPlugin_v3 = {NAME, init_v3, decide_v3, forget};
EXPORTED const struct tuner_v4 ncclTunerPlugin_v4 = {NAME, init_v3, decide_v5, forget};
EXPORTED const struct tuner_v5 ncclTunerPlugin_v5 = {NAME, init_v5, decide_v5, forget};
EXPORTED const struct tuner_v6 ncclTunerPlugin_v6 = {{NAME, init_v5, decide_v5, forget}, NULL};
EXPORTED const struct tuner_v6 ncclTunerPlugin_v7 = {{NAME, init_v5, decide_v5, forget}, NULL};
