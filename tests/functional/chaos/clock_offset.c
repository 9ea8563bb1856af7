/* Adds an offset to the wall clock of one process, and to nothing else: LD_PRELOAD it.
 *
 * $CLOCK_OFFSET_FILE holds one int64, nanoseconds in the machine's byte order; it may be changed at any time.
 * libfaketime is not used because its clock_nanosleep() breaks Python's time.sleep() (EINVAL).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset_ns;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    offset_ns = page == MAP_FAILED ? NULL : page;
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_gettime)
        real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real_gettime(clock, now);
    if (status == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *offset_ns;
        now->tv_sec = total / 1000000000;
        now->tv_nsec = total % 1000000000;
    }
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
