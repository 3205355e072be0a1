// A clock that can be stepped and can run fast or slow: an LD_PRELOAD shim that changes a program's
// wall clock. It reads three native int64 each time from the file that SKEW_FILE names: an offset in
// nanoseconds, an instant of the real clock in nanoseconds since 1970, and how many nanoseconds a
// second the clock gains from that instant on. The other clocks are left alone.
//
//	cc -shared -fPIC -O2 -o skew.so clock-skew.c
//	SKEW_FILE=skew LD_PRELOAD=./skew.so redis-server …
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct skew {
	int64_t offset, anchor, rate;
};

static volatile struct skew none;
static volatile struct skew *skew = &none; // the file, mapped

__attribute__((constructor)) static void map_skew(void) {
	const char *path = getenv("SKEW_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *mapped = mmap(0, sizeof *skew, PROT_READ, MAP_SHARED, fd, 0);
	if (mapped != MAP_FAILED)
		skew = mapped;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, clock, t);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t ns = t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
		int64_t rate = skew->rate;
		if (rate)
			ns += (int64_t)((double)(ns - skew->anchor) * (double)rate / 1e9);
		ns += skew->offset;
		t->tv_sec = ns / 1000000000;
		t->tv_nsec = ns % 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict v, void *restrict zone) {
	struct timespec t;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &t);
	v->tv_sec = t.tv_sec;
	v->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *where) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (where)
		*where = t.tv_sec;
	return t.tv_sec;
}
