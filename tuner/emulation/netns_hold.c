/* Lets ranks that wait for a message sleep, so that a few cores suffice for many hosts.
 *
 * An MPI library that waits polls its sockets (epoll_wait with timeout 0), finds nothing, yields
 * (sched_yield in Open MPI, usleep in MPICH) and polls again: with more ranks than cores all of
 * them use time that the rank with work to do needs. Preloaded, this library turns the yield into a
 * sleep that ends as soon as one of the polled descriptors is ready. It does not change what the
 * MPI library sends, or when.
 *
 * Not everything is announced by a descriptor: ranks of one host write into shared memory, and a
 * library may need a few more polls to finish what it just sent (MPICH's UCX does). So a sleep also
 * has a timeout, short after something came in and doubled each time: up to 1 ms, but with several
 * ranks per host only what the cores can stand, since all waiting ranks wake up this often. A poll
 * costs some 5 us, so 8 us for each rank of the launch leave two cores mostly free. Launchers tell
 * their ranks how many there are, in all and on this host. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, LOOKS = 2 }; /* descriptors; polls before the first sleep */

enum { ALONE = 1000, EACH = 8 }; /* us; longest sleep without shared memory; sleep per rank */

static int rank; /* whether this process is a rank */
static long longest; /* us; longest sleep */
static __thread struct pollfd watched[MOST];
static __thread int n_watched, looked, urgent;
static __thread long nap; /* us; length of the last sleep */

/* Returns the number in the variable of Open MPI's launcher or in that of MPICH's, or 1. */
static long told(const char *open_mpi, const char *mpich) {
    const char *text = getenv(open_mpi);
    if (!text) text = getenv(mpich);
    return text ? atol(text) : 1;
}

/* Returns whether ranks of one host communicate through sockets, too. */
static int without_memory(void) {
    const char *transports = getenv("OMPI_MCA_btl");
    return getenv("MPIR_CVAR_NOLOCAL") || (transports && !strstr(transports, "sm"));
}

__attribute__((constructor)) static void begin(void) {
    rank = getenv("PMIX_RANK") || getenv("PMI_RANK");
    long here = told("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS");
    long all = told("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    longest = here == 1 || without_memory() ? ALONE : EACH * all;
}

/* Requests real-time priority, an improvement that is not required. Called only when a rank waits
 * for the first time: many ranks that start at once would block everything else for too long. */
static void make_urgent(void) {
    struct sched_param priority = {.sched_priority = 10};
    urgent = 1;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
}

static void watch(int descriptor) {
    for (int i = 0; i < n_watched; i++)
        if (watched[i].fd == descriptor) return;
    if (n_watched < MOST) watched[n_watched++] = (struct pollfd){descriptor, POLLIN, 0};
}

int epoll_wait(int descriptor, struct epoll_event *events, int most, int time) {
    int found = syscall(SYS_epoll_wait, descriptor, events, most, time);
    if (rank && time == 0) {
        watch(descriptor);
        if (found) looked = 0;
    }
    return found;
}

static void forget_closed(void) {
    for (int i = 0; i < n_watched; i++)
        if (watched[i].revents & POLLNVAL) watched[i--] = watched[--n_watched];
}

/* Sleeps unless this is no rank or it has polled too little; returns whether it slept. */
static int sleep_a_little(void) {
    if (!rank || !n_watched || looked++ < LOOKS) return 0;
    if (!urgent) make_urgent();
    nap = looked == LOOKS + 1 ? EACH : 2 * nap;
    if (nap > longest) nap = longest;
    struct timespec time = {nap / 1000000, nap % 1000000 * 1000};
    if (ppoll(watched, n_watched, &time, NULL) > 0) forget_closed();
    return 1;
}

int sched_yield(void) { return sleep_a_little() ? 0 : syscall(SYS_sched_yield); }

int usleep(useconds_t microseconds) {
    if (microseconds <= 1 && sleep_a_little()) return 0;
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    return nanosleep(&time, NULL);
}
