/* Runs a command on a host of an emulated cluster, as ssh would.
 *
 *   netns_exec --cluster DIRECTORY HOST PROGRAM [ARGUMENT...]   without a shell
 *   netns_exec [OPTION...] HOST WORD...                     as `ssh HOST WORD...`, for launchers;
 *                                                           options of ssh are ignored
 *
 * DIRECTORY has the cluster's files (cluster.py); without --cluster it is taken from TUNER_EMULATED_CLUSTER. The command
 * gets the host's network, host name, /etc/hosts and shared memory, and the variables in the cluster's
 * file `environment`. In the first form it gets SIGTERM when the caller ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *cluster;

static void stop(const char *what) {
    fprintf(stderr, "enter: %s: %s\n", what, strerror(errno));
    exit(255); /* exit status of ssh on an error of its own */
}

static const char *inside(const char *form, const char *name) {
    static char path[2][4096];
    static int turn;
    char *made = path[turn = !turn];
    if (snprintf(made, sizeof path[0], form, cluster, name) >= (int)sizeof path[0]) stop("name");
    return made;
}

static void read_environment(void) {
    FILE *file = fopen(inside("%s/environment", ""), "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) stop("environment");
    for (ssize_t n; (n = getline(&line, &room, file)) > 0;) {
        line[strcspn(line, "\n")] = 0;
        if (strchr(line, '=')) putenv(strdup(line));
    }
    fclose(file);
    setenv("TUNER_EMULATED_CLUSTER", cluster, 1);
}

static void enter(const char *host) {
    int space = open(inside("%s/net/%s", host), O_RDONLY | O_CLOEXEC);
    if (strchr(host, '/') || space < 0) {
        fprintf(stderr, "ssh: Could not resolve hostname %s: this cluster has no such host\n", host);
        exit(255);
    }
    if (setns(space, CLONE_NEWNET) || unshare(CLONE_NEWUTS | CLONE_NEWNS)) stop(host);
    if (sethostname(host, strlen(host))) stop(host);
    if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL)) stop("mounts");
    if (mount(inside("%s/hosts", ""), "/etc/hosts", NULL, MS_BIND, NULL)) stop("/etc/hosts");
    if (mount(inside("%s/memory/%s", host), "/dev/shm", NULL, MS_BIND | MS_REC, NULL))
        stop("/dev/shm");
}

static char *joined(char **words) {
    size_t size = 1;
    for (char **w = words; *w; w++) size += strlen(*w) + 1;
    char *text = calloc(size, 1);
    for (char **w = words; *w; w++) strcat(strcat(text, *w), w[1] ? " " : "");
    return text;
}

int main(int count, char **word) {
    int at = 1, plain = count > 2 && !strcmp(word[1], "--cluster");
    if (plain) {
        cluster = word[2];
        at = 3;
    } else {
        cluster = getenv("TUNER_EMULATED_CLUSTER");
        for (; at < count && word[at][0] == '-'; at++) /* some options take a value */
            if (word[at][2] == 0 && strchr("bcDEeFIiJLlmOopQRSWw", word[at][1])) at++;
    }
    if (!cluster || count - at < 2) {
        fputs("usage: netns_exec [--cluster DIRECTORY] HOST COMMAND...\n", stderr);
        return 255;
    }
    read_environment();
    enter(word[at++]);
    if (!plain) {
        execl("/bin/sh", "sh", "-c", joined(word + at), NULL);
        stop("/bin/sh");
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* end with the caller */
    execvp(word[at], word + at);
    stop(word[at]);
}
