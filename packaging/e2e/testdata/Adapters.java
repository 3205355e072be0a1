// Tests of the Java adapters, with stand-ins for the frameworks. The parts that the adapters use:
//
// ShedLock, shedlock-core/src/main/java/net/javacrumbs/shedlock/core: LockProvider.lock(LockConfiguration) returns an
// Optional<SimpleLock>; SimpleLock.unlock(); LockConfiguration has a name and two durations.
// Quartz 2.3.2, org.quartz: Job.execute(JobExecutionContext) throws JobExecutionException; getJobDetail().getKey().

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.JobExecutionException;

class Adapters {
    interface Step<T> {
        T run() throws Exception;
    }

    /** Repeats a step whose nodes were silent on a busy machine: wait=0 does not wait for them. */
    static <T> T unlessStarved(Step<T> step) throws Exception {
        for (int left = 50; ; left--) {
            try {
                return step.run();
            } catch (IllegalStateException | JobExecutionException e) {
                if (left == 0 || !e.getMessage().contains("NOQUORUM")) {
                    throw e;
                }
            }
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void shedLock() throws Exception {
        var provider = new RedlockdLockProvider();
        Step<Optional<SimpleLock>> lock = () -> provider.lock(new LockConfiguration("shed lock", Duration.ofMinutes(1), Duration.ZERO));
        SimpleLock held = unlessStarved(lock).get();
        check(unlessStarved(lock).isEmpty(), "two tasks have the lock");
        held.unlock();
        for (Optional<SimpleLock> again = Optional.empty(); again.isEmpty(); ) { // the connection ends
            again = unlessStarved(lock);
            again.ifPresent(SimpleLock::unlock);
        }
        Step<Optional<SimpleLock>> atLeast = () -> provider.lock(new LockConfiguration("at least", Duration.ofHours(2), Duration.ofHours(1)));
        unlessStarved(atLeast).get().unlock();
        check(unlessStarved(atLeast).isEmpty(), "lockAtLeastFor has no effect");
    }

    static void quartz() throws Exception {
        JobExecutionContext context = () -> new JobDetail("group.report");
        var began = new CountDownLatch(1);
        var finish = new CountDownLatch(1);
        var runs = new AtomicInteger();
        var job = new RedlockdJob() {
            @Override
            protected void execute(JobExecutionContext context, Locked.Lock lock) throws Exception {
                runs.incrementAndGet();
                check(lock.fence > 0 && lock.over.getCount() == 1, "no lock in the job");
                began.countDown();
                finish.await();
            }
        };
        var first = new Thread(() -> {
            try {
                unlessStarved(() -> { job.execute(context); return null; });
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        first.start();
        began.await();
        unlessStarved(() -> { job.execute(context); return null; });
        check(runs.get() == 1, "two executions at the same time");
        finish.countDown();
        first.join();
        unlessStarved(() -> { job.execute(context); return null; });
        check(runs.get() == 2, "no execution after the first one");
    }

    public static void main(String[] args) throws Exception {
        shedLock();
        quartz();
        System.out.println("ok");
    }
}
