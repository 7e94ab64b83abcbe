/* The flat file of a table. Its records are described where Python writes them. */

#include "tuner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct table table;
_Atomic uint64_t *rule_calls;

/* Map a file; return NULL, or why that fails. */
const char *open_table(const char *path, const void **content, size_t *size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return strerror(errno);
    struct stat status;
    const char *failure = NULL;
    if (fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_size == 0)
        failure = "not a regular file with content";
    else
        *content = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (!failure && *content == MAP_FAILED)
        failure = strerror(errno);
    *size = failure ? 0 : (size_t)status.st_size;
    close(file);
    return failure;
}

/* The checksum of zlib and of Ethernet, of a file in which its own field is 0. */
static uint32_t checksum(const unsigned char *bytes, size_t size)
{
    const size_t field = offsetof(struct header, checksum);
    uint32_t steps[256], sum = 0xffffffff;
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t step = value;
        for (int bit = 0; bit < 8; bit++)
            step = step >> 1 ^ (step & 1 ? 0xedb88320 : 0);
        steps[value] = step;
    }
    for (size_t at = 0; at < size; at++) {
        unsigned char byte = at - field < sizeof(uint32_t) ? 0 : bytes[at];
        sum = sum >> 8 ^ steps[(sum ^ byte) & 0xff];
    }
    return ~sum;
}

static const void *records(const void *content, struct span span)
{
    return (const char *)content + span.offset;
}

/* Use the content of a file from now on; return NULL, or why it cannot be used. */
const char *use_table(const void *content, size_t size)
{
    const struct header *header = content;
    if (size < sizeof *header || header->magic != MAGIC)
        return "not the flat file of a table";
    if (header->format != FORMAT)
        return "made by another version of tuner";
    if (header->n_bytes != size || checksum(content, size) != header->checksum)
        return "damaged";
    table = (struct table){
        .header = header,
        .shapes = records(content, header->shapes),
        .rules = records(content, header->rules),
        .choices = records(content, header->choices),
        .settings = records(content, header->settings),
        .variants = records(content, header->variants),
        .programs = records(content, header->programs),
        .patterns = records(content, header->patterns),
        .instructions = records(content, header->instructions),
        .strings = records(content, header->strings),
        .n_shapes = header->shapes.count,
        .n_choices = header->choices.count,
        .n_rules = header->rules.count,
        .n_settings = header->settings.count,
    };
    rule_calls = calloc(table.n_rules + 1, sizeof *rule_calls);
    return rule_calls ? NULL : "no memory";
}
