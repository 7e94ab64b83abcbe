/* Flips a bit of a flat file, again and again; fails where the damaged file is accepted. */

#include "tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const void *content;
    size_t size;
    if (argc < 3 || open_table(argv[1], &content, &size) || use_table(content, size))
        return 2;
    char *copy = malloc(size);
    srand(1);
    for (int trial = 0; trial < atoi(argv[2]); trial++) {
        size_t place = (size_t)rand() % (trial % 2 ? size : 256);
        memcpy(copy, content, size);
        copy[place] ^= (char)(1 << rand() % 8);
        if (!use_table(copy, size)) {
            printf("a flip in byte %zu of %zu is not noticed\n", place, size);
            return 1;
        }
        if (!use_table(content, place))
            return 3;
    }
    puts("all noticed");
    return 0;
}
