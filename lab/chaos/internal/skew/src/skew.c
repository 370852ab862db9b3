// Puts a number of nanoseconds, which may change at any time, on the time of day that a program sees. Its monotonic
// clock goes on as it was.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *skew; // NULL until init has run

__attribute__((constructor)) static void init(void) {
  const char *path = getenv("CHAOS_SKEW");
  int fd = path ? open(path, O_RDONLY) : -1;
  if (fd < 0) return;
  void *p = mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p != MAP_FAILED) skew = p;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  int r = syscall(SYS_clock_gettime, id, ts);
  if (r == 0 && skew && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + *skew;
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
  }
  return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  (void)tz;
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  tv->tv_sec = ts.tv_sec;
  tv->tv_usec = ts.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *t) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  if (t) *t = ts.tv_sec;
  return ts.tv_sec;
}
