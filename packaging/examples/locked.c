/* locked NAME STEPS [OPTION=VALUE ...]: works under a lock of redlockd.
 *
 *   cc -o locked locked.c
 *
 * It needs only POSIX. Exit status: 0 done, 1 held by another process, 64 usage, 69 no
 * redlockd or no quorum, 70 another refusal, 75 the lock was lost, 77 not allowed. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *program;
static int conn;
static char in[8192]; /* received; a line has at most 4096 bytes */
static size_t filled;

static void fail(int status, const char *what, const char *why)
{
	fprintf(stderr, "%s: %s%s\n", program, what, why);
	exit(status); /* this closes the connection, so redlockd releases the lock */
}

static void dial(void)
{
	const char *path = getenv("REDLOCK_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (path == NULL || *path == '\0')
		path = "/run/redlockd/redlockd.sock";
	if (strlen(path) >= sizeof address.sun_path)
		fail(69, path, ": too long for the path of a socket");
	strcpy(address.sun_path, path);
	conn = socket(AF_UNIX, SOCK_STREAM, 0);
	if (conn < 0 || connect(conn, (struct sockaddr *)&address, sizeof address) < 0) {
		fprintf(stderr, "%s: ", program);
		perror(path);
		exit(69);
	}
}

/* next_line waits for a line for at most so many ms (-1: without a limit) and copies it,
 * without its LF, to line, which is as large as in. 0: none came; -1: redlockd is gone. */
static int next_line(char *line, int ms)
{
	for (;;) {
		char *end = memchr(in, '\n', filled);
		if (end != NULL) {
			size_t length = (size_t)(end - in);
			memcpy(line, in, length);
			line[length] = '\0';
			filled -= length + 1;
			memmove(in, end + 1, filled);
			return 1;
		}
		struct pollfd ready = {.fd = conn, .events = POLLIN};
		int n = poll(&ready, 1, ms);
		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		ssize_t got = n < 0 ? -1 : read(conn, in + filled, sizeof in - filled);
		if (got <= 0)
			return -1;
		filled += (size_t)got;
	}
}

/* event handles a line between answers: LOST; BACK, after a restart of redlockd that kept
 * the lock; or BYE, before redlockd stops. */
static void event(const char *line)
{
	if (strncmp(line, "LOST ", 5) == 0)
		fail(75, "stopped: ", line);
}

static int status_of(const char *error)
{
	static const struct { const char *code; int status; } known[] = {
		{"HELD", 1}, {"NOQUORUM", 69}, {"SHUTDOWN", 69}, {"DENIED", 77}, {"LIMIT", 77}, {"LOST", 75},
	};
	size_t length = strcspn(error, " ");
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strlen(known[i].code) == length && strncmp(error, known[i].code, length) == 0)
			return known[i].status;
	return 70;
}

/* ask sends a request and leaves its OK in line, or ends the program. */
static void ask(const char *request, char *line)
{
	for (size_t sent = 0; sent < strlen(request);) {
		ssize_t n = write(conn, request + sent, strlen(request) - sent);
		if (n <= 0)
			break; /* the last line of redlockd is still to be read */
		sent += (size_t)n;
	}
	while (next_line(line, -1) == 1) {
		if (strncmp(line, "OK", 2) == 0)
			return;
		if (strncmp(line, "ERR ", 4) == 0)
			fail(status_of(line + 4), line, "");
		event(line);
	}
	fail(69, "redlockd does not answer", "");
}

/* work is what the lock protects, in steps. Its storage should refuse a fencing token
 * that is smaller than the largest it has seen. */
static void work(const char *name, long long fence, int steps)
{
	char line[sizeof in];
	printf("holding %s, fencing token %lld\n", name, fence);
	for (int step = 1; step <= steps; step++) {
		switch (next_line(line, 100)) {
		case 1:
			event(line);
			break;
		case -1:
			fail(75, "stopped: ", "redlockd is gone, and nobody keeps the lock");
		}
		printf("step %d\n", step);
	}
}

int main(int argc, char **argv)
{
	char quoted[3 * 200 + 1] = "", request[4096], line[sizeof in];
	program = argv[0];
	if (argc < 3 || strlen(argv[1]) > 200) {
		fprintf(stderr, "usage: %s NAME STEPS [OPTION=VALUE ...]\n", program);
		return 64;
	}
	for (const unsigned char *c = (unsigned char *)argv[1]; *c; c++) /* as the protocol escapes names */
		sprintf(quoted + strlen(quoted), *c <= ' ' || strchr("=,%\177", *c) ? "%%%02X" : "%c", *c);
	size_t length = (size_t)snprintf(request, sizeof request, "LOCK %s", quoted);
	for (int i = 3; i < argc && length < sizeof request; i++)
		length += (size_t)snprintf(request + length, sizeof request - length, " %s", argv[i]);
	if (length + 2 > sizeof request)
		fail(64, "the options are too long", "");
	strcat(request, "\n");

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN); /* a read notices the end of redlockd */
	dial();
	ask(request, line);
	const char *fence = strstr(line, " fence=");
	work(argv[1], fence == NULL ? 0 : atoll(fence + 7), atoi(argv[2]));
	snprintf(request, sizeof request, "UNLOCK %s\n", quoted);
	ask(request, line);
	puts("done");
	return 0;
}
