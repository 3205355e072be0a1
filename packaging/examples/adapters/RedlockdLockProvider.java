import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A LockProvider for ShedLock (4 and later, Java 16). It needs ../locked.java: put both into one package.
 *
 * <p>{@code @Bean LockProvider lockProvider() { return new RedlockdLockProvider(); }}
 *
 * <p>lockAtMostFor is max=, and lockAtLeastFor is min=. A lock ends with its process, too. ShedLock does not tell a task
 * that its lock was lost, with any provider: the task must end before lockAtMostFor.
 */
public class RedlockdLockProvider implements LockProvider {
    @Override
    public Optional<SimpleLock> lock(LockConfiguration wanted) {
        Duration most = wanted.getLockAtMostFor(), least = wanted.getLockAtLeastFor();
        try {
            var lock = new Locked.Lock(wanted.getName(), "wait=0", "max=" + Math.max(100, most.toMillis()), "min=" + least.toMillis());
            return Optional.of(lock::close);
        } catch (Locked.Failure failure) {
            if (failure.status == 1) { // held
                return Optional.empty();
            }
            throw new IllegalStateException(failure); // no quorum, no redlockd: the task does not run
        }
    }
}
