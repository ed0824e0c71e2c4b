#include "calls.h"
#include "_cgo_export.h"

#include <pthread.h>
#include <time.h>

int add(int a, int b) { return a + b; }

void sleep_us(int us) {
	struct timespec t = {us / 1000000, (us % 1000000) * 1000L};
	nanosleep(&t, 0);
}

void spin_us(int us) {
	struct timespec t, end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += us * 1000L;
	end.tv_sec += end.tv_nsec / 1000000000L;
	end.tv_nsec %= 1000000000L;
	do {
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (t.tv_sec < end.tv_sec || (t.tv_sec == end.tv_sec && t.tv_nsec < end.tv_nsec));
}

int call_back(int depth) { return goEnter(depth); }

static void *thread(void *arg) {
	int n = *(int *)arg;
	for (int i = 0; i < n; i++) {
		goEnterShort();
		sleep_us(200);
	}
	goEnter(0);
	return 0;
}

int run_threads(int n, int callbacks) {
	pthread_t t[16];
	int made = 0;
	if (n > 16) n = 16;
	while (made < n && pthread_create(&t[made], 0, thread, &callbacks) == 0) made++;
	for (int i = 0; i < made; i++) pthread_join(t[i], 0);
	return n - made;
}
