/* Loads a library and calls its `run` with the other arguments, as an interpreter loads an extension
 * that is linked to MPI.
 *
 * preload_interpreter LIBRARY ARGUMENT... */

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *extension = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(int, char **) = extension ? (int (*)(int, char **))dlsym(extension, "run") : NULL;
    if (!run) {
        puts(dlerror());
        return 1;
    }
    return run(argc - 1, argv + 1);
}
