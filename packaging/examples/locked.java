// java locked.java NAME STEPS [OPTION=VALUE ...]: works under a lock of redlockd.
//
// It needs a JDK, 16 or later. Exit status: 0 done, 1 held by another process,
// 64 usage, 69 no redlockd or no quorum, 70 another refusal, 75 the lock was lost,
// 77 not allowed.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

class Locked {
    /** Why the lock is not held, or was lost. */
    static class Failure extends Exception {
        private static final Map<String, Integer> STATUS_OF =
                Map.of("HELD", 1, "NOQUORUM", 69, "SHUTDOWN", 69, "DENIED", 77, "LIMIT", 77, "LOST", 75);

        final int status;

        Failure(int status, String message) {
            super(message);
            this.status = status;
        }

        /** The exit status for an answer other than OK. */
        static Failure of(String answer) {
            Matcher code = Pattern.compile("ERR (\\w+)").matcher(answer);
            return new Failure(code.lookingAt() ? STATUS_OF.getOrDefault(code.group(1), 70) : 75, answer);
        }
    }

    /** A lock, held in a try block that ends with unlock: try (var lock = new Lock("name")). */
    static class Lock implements AutoCloseable {
        final long fence;
        final CountDownLatch over = new CountDownLatch(1); // check it, or wait for it, while working
        volatile String why; // why it is not held: LOST, or the answer to UNLOCK

        private final String quoted;
        private final SocketChannel conn; // when it ends, redlockd releases the lock
        private final BufferedReader lines;

        Lock(String name, String... options) throws Failure {
            quoted = URLEncoder.encode(name, UTF_8).replace("+", "%20");
            String socket = System.getenv().getOrDefault("REDLOCK_SOCKET", "");
            socket = socket.isEmpty() ? "/run/redlockd/redlockd.sock" : socket;
            try {
                conn = SocketChannel.open(UnixDomainSocketAddress.of(socket));
            } catch (IOException e) {
                throw new Failure(69, socket + ": " + e.getMessage());
            }
            lines = new BufferedReader(Channels.newReader(conn, UTF_8));
            send("LOCK " + quoted + " " + String.join(" ", options));
            String answer = next("OK", "ERR");
            Matcher granted = Pattern.compile("OK .*? fence=(\\d+)", Pattern.DOTALL).matcher(answer);
            if (!granted.lookingAt()) {
                close();
                throw Failure.of(answer.isEmpty() ? "ERR SHUTDOWN : redlockd is gone" : answer);
            }
            fence = Long.parseLong(granted.group(1));
            Thread listener = new Thread(this::listen);
            listener.setDaemon(true);
            listener.start();
        }

        /** Releases the lock. It fails if the lock was lost before. */
        void unlock() throws Failure, InterruptedException {
            send("UNLOCK " + quoted);
            over.await();
            if (!why.startsWith("OK")) {
                throw Failure.of(why);
            }
        }

        @Override
        public void close() {
            try {
                conn.close();
            } catch (IOException e) { // the connection has ended
            }
        }

        private void listen() {
            String line = next("OK", "ERR", "LOST");
            why = line.isEmpty() ? "redlockd is gone, and nobody keeps the lock" : line;
            over.countDown();
        }

        /** The next line with such a beginning; nothing if the connection ends before. */
        private String next(String... words) {
            try {
                for (String line; (line = lines.readLine()) != null; ) {
                    if (List.of(words).contains(line.split(" ", 2)[0])) {
                        return line;
                    } // else BACK: redlockd was restarted, and the lock is kept. BYE: it stops soon
                }
            } catch (IOException e) { // the connection ended
            }
            return "";
        }

        private void send(String line) {
            try {
                for (ByteBuffer rest = UTF_8.encode(line + "\n"); rest.hasRemaining(); ) {
                    conn.write(rest);
                }
            } catch (IOException e) { // the reader notices the end
            }
        }
    }

    /** What the lock protects. Its storage should refuse a fencing token that is smaller than the largest it has seen. */
    static void work(Lock lock, int steps) throws Failure, InterruptedException {
        for (int step = 1; step <= steps; step++) {
            if (lock.over.await(100, TimeUnit.MILLISECONDS)) {
                throw new Failure(75, "stopped: " + lock.why);
            }
            System.out.println("step " + step);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        if (args.length < 2 || !args[1].matches("\\d{1,9}")) {
            System.err.println("usage: java locked.java NAME STEPS [OPTION=VALUE ...]");
            System.exit(64);
        }
        try (var lock = new Lock(args[0], List.of(args).subList(2, args.length).toArray(String[]::new))) {
            System.out.println("holding " + args[0] + ", fencing token " + lock.fence);
            work(lock, Integer.parseInt(args[1]));
            lock.unlock();
            System.out.println("done");
        } catch (Failure failure) {
            System.err.println("locked.java: " + failure.getMessage());
            System.exit(failure.status);
        }
    }
}
