/* The network of an emulated cluster: carries Ethernet frames between the hosts of an emulated cluster.
 *
 *   switch NETNS TABLE COUNTERS
 *
 * NETNS is the network namespace in which interface pN is the far end of host N's cable, TABLE
 * lists the links and routes (emulation.py), and COUNTERS is the file in which this program counts
 * while it runs (counters.py). It prints "ready" on standard output once it works.
 *
 * A link passes one frame after another, in the order in which their first bits reach it, and each
 * occupies it for length / rate. Frames are forwarded while they still arrive; the last bit leaves
 * the last link at the rate of the slowest one, and every link adds its latency. Nothing is lost.
 *
 * Times are exact because the kernel timestamps a frame when a host sends it, and all times are
 * computed from these timestamps, however late this program reads the frame. It wakes up earlier
 * than necessary, by as much as it has lately been late, and polls until the time of delivery. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER = sizeof(struct virtio_net_hdr), /* carries the checksum offload state */
    ROOM = HEADER + 9014 + 32,              /* the largest frame with a VLAN tag */
    FRAMES = 1 << 16,                       /* most frames in flight */
    BINS = 16,                              /* of lags: below 1, 2, 4 ... us */
    AT_ONCE = 16,                           /* frames read from one host before the next host */
    BUFFER = 1 << 26,                       /* receive buffer per host in bytes */
};
static const int64_t SECOND = 1000000000, MOST_EARLY = 40000, STALE = 1000000000;
static const uint64_t SHARE = 850000, PERIOD = 1000000; /* ns of a core that are reserved */

typedef struct { double ns_per_byte; int64_t latency, free_at; } Link;
typedef struct { int hops; int *link; } Route;
typedef struct {
    const Route *route;
    int to, hop, length;
    int64_t first, last; /* when its first and its last bit reach the next link */
    uint8_t bytes[ROOM];
} Frame;
typedef struct { int64_t time; uint64_t order; int frame; } Event;

/* The layout of the file COUNTERS. */
typedef struct { uint64_t bytes, frames, longest_wait; } LinkCount;
typedef struct {
    uint64_t real_time, lost, deliveries, worst_lag, ahead, lags[BINS];
    LinkCount link[];
} Counters;

static Frame *frames;
static int unused[FRAMES], n_unused, n_hosts, n_links, *port;
static Event agenda[FRAMES + 1];
static int n_events;
static uint64_t order;
static Link *links;
static Route *routes;
static Counters *counters;
static double late, spread; /* ns: mean and deviation of recent oversleeping */

static void stop(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* ---- event queue: a heap, the earliest event on top ---- */

static int sooner(const Event *a, const Event *b) {
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static void add_event(int64_t time, int frame) {
    Event added = {time, order++, frame};
    int at = n_events++;
    while (at > 0 && sooner(&added, &agenda[(at - 1) / 2])) {
        agenda[at] = agenda[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    agenda[at] = added;
}

static Event take_event(void) {
    Event top = agenda[0], moved = agenda[--n_events];
    int at = 0;
    for (int child = 1; child < n_events; child = 2 * at + 1) {
        if (child + 1 < n_events && sooner(&agenda[child + 1], &agenda[child])) child++;
        if (sooner(&moved, &agenda[child])) break;
        agenda[at] = agenda[child];
        at = child;
    }
    agenda[at] = moved;
    return top;
}

/* ---- frames in flight ---- */

static void cross(Frame *frame) {
    int number = frame->route->link[frame->hop++];
    Link *link = &links[number];
    LinkCount *count = &counters->link[number];
    int64_t start = frame->first > link->free_at ? frame->first : link->free_at;
    int64_t end = start + (int64_t)(frame->length * link->ns_per_byte + 0.5);
    uint64_t waited = start - frame->first;
    if (end < frame->last) end = frame->last; /* the last bit leaves after it has arrived */
    link->free_at = end;
    frame->first = start + link->latency;
    frame->last = end + link->latency;
    count->bytes += frame->length;
    count->frames++;
    if (waited > count->longest_wait) count->longest_wait = waited;
}

static void deliver(int number, int64_t due) {
    Frame *frame = &frames[number];
    int64_t lag = now(CLOCK_MONOTONIC) - due;
    int bin = 0;
    if (lag < 0) lag = 0;
    while (bin < BINS - 1 && lag >= 1000L << bin) bin++;
    counters->lags[bin]++;
    counters->deliveries++;
    if ((uint64_t)lag > counters->worst_lag) counters->worst_lag = lag;
    if (send(port[frame->to], frame->bytes, HEADER + frame->length, 0) < 0) counters->lost++;
    unused[n_unused++] = number;
}

static void carry_until(int64_t time) {
    while (n_events && agenda[0].time <= time) {
        Event event = take_event();
        Frame *frame = &frames[event.frame];
        if (frame->hop == frame->route->hops) {
            deliver(event.frame, event.time);
        } else {
            cross(frame);
            int last = frame->hop == frame->route->hops;
            add_event(last ? frame->last : frame->first, event.frame);
        }
    }
}

/* ---- frames from hosts ---- */

static int64_t stamp_of(struct msghdr *message) {
    int64_t here = now(CLOCK_MONOTONIC), wall = now(CLOCK_REALTIME);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            int64_t age = wall - (t.tv_sec * SECOND + t.tv_nsec);
            if (age > 0 && age < STALE) return here - age;
        }
    return here;
}

/* Returns 1 after reading a frame, also a dropped one; 0 if there is none or no room for it. */
static int read_frame(int from) {
    if (!n_unused) return 0;
    int number = unused[n_unused - 1];
    Frame *frame = &frames[number];
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct iovec part = {frame->bytes, ROOM};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length = recvmsg(port[from], &message, MSG_TRUNC | MSG_DONTWAIT);
    if (length < 0) return 0;
    const uint8_t *to = frame->bytes + HEADER; /* its last two bytes are the host's number */
    int target = to[4] << 8 | to[5];
    if (length > ROOM) {
        counters->lost++;
    } else if (!(to[0] & 1) && target < n_hosts && target != from) {
        n_unused--;
        frame->route = &routes[from * n_hosts + target];
        frame->to = target;
        frame->hop = 0;
        frame->length = length - HEADER;
        frame->first = frame->last = stamp_of(&message);
        add_event(frame->first, number);
    }
    return 1;
}

/* ---- waiting ---- */

static double early(void) {
    double ahead = late + spread;
    return ahead < MOST_EARLY ? ahead : MOST_EARLY;
}

/* Sleeps until frames come or shortly before the next event; from then on only polls. */
static int wait_for_frames(int poll, struct epoll_event *ready, int most) {
    if (!n_events) return epoll_pwait2(poll, ready, most, NULL, NULL);
    int64_t wake = agenda[0].time - (int64_t)early(), left = wake - now(CLOCK_MONOTONIC);
    if (left <= 0) return epoll_wait(poll, ready, most, 0);
    struct timespec rest = {left / SECOND, left % SECOND};
    int found = epoll_pwait2(poll, ready, most, &rest, NULL);
    if (found == 0) {
        int64_t over = now(CLOCK_MONOTONIC) - wake; /* outliers are clipped */
        double off = (over < MOST_EARLY ? over : MOST_EARLY) - late;
        late += off / 16;
        spread += ((off < 0 ? -off : off) - spread) / 16;
        counters->ahead = early();
    }
    return found;
}

static void carry_for_ever(int poll) {
    struct epoll_event ready[64];
    for (;;) {
        int found = wait_for_frames(poll, ready, 64);
        for (int i = 0; i < found; i++)
            for (int k = 0; k < AT_ONCE && read_frame(ready[i].data.u32); k++);
        carry_until(now(CLOCK_MONOTONIC));
    }
}

/* ---- start ---- */

static int open_port(int number, int poll) {
    char name[IF_NAMESIZE];
    snprintf(name, sizeof name, "p%d", number);
    int on = 1, buffer = BUFFER, made = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll end = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                              .sll_ifindex = if_nametoindex(name)};
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = number};
    if (made < 0 || setsockopt(made, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on)
        || setsockopt(made, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)
        || setsockopt(made, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on)
        || setsockopt(made, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)
        || setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer)
        || bind(made, (struct sockaddr *)&end, sizeof end)
        || epoll_ctl(poll, EPOLL_CTL_ADD, made, &wanted))
        stop(name);
    return made;
}

static void read_table(const char *path) {
    FILE *table = fopen(path, "r");
    int from, to, hops;
    if (!table || fscanf(table, "%d %d", &n_hosts, &n_links) != 2) stop(path);
    links = calloc(n_links, sizeof *links);
    routes = calloc((size_t)n_hosts * n_hosts, sizeof *routes);
    for (int i = 0; i < n_links; i++)
        if (fscanf(table, "%lf %ld", &links[i].ns_per_byte, &links[i].latency) != 2) stop(path);
    while (fscanf(table, "%d %d %d", &from, &to, &hops) == 3) {
        Route *route = &routes[from * n_hosts + to];
        *route = (Route){hops, calloc(hops, sizeof(int))};
        for (int i = 0; i < hops; i++)
            if (fscanf(table, "%d", &route->link[i]) != 1) stop(path);
    }
    fclose(table);
}

static void share_counters(const char *path) {
    size_t size = sizeof *counters + n_links * sizeof *counters->link;
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, size)) stop(path);
    counters = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counters == MAP_FAILED) stop(path);
    close(file);
}

/* Requests priority over everything else: deadline scheduling if possible, because the kernel lets
 * ordinary programs that have starved run before those of the highest fixed priority for 50 ms. */
static int make_urgent(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } wanted = {sizeof wanted, 6 /* SCHED_DEADLINE */, 0, 0, 0, SHARE, PERIOD, PERIOD};
    struct sched_param priority = {.sched_priority = 20};
    return !syscall(SYS_sched_setattr, 0, &wanted, 0) || !sched_setscheduler(0, SCHED_FIFO, &priority);
}

int main(int count, char **word) {
    if (count != 4) return fputs("usage: switch NETNS TABLE COUNTERS\n", stderr), 2;
    int space = open(word[1], O_RDONLY), poll = epoll_create1(0);
    if (space < 0 || setns(space, CLONE_NEWNET)) stop(word[1]);
    read_table(word[2]);
    share_counters(word[3]);
    frames = mmap(NULL, sizeof *frames * FRAMES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (frames == MAP_FAILED) stop("memory for frames");
    for (int i = FRAMES; i-- > 0;) unused[n_unused++] = i; /* a stack: few frames are reused */
    port = calloc(n_hosts, sizeof *port);
    for (int i = 0; i < n_hosts; i++) port[i] = open_port(i, poll);
    counters->real_time = make_urgent();
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    signal(SIGHUP, SIG_IGN);
    puts("ready");
    fflush(stdout);
    carry_for_ever(poll);
}
