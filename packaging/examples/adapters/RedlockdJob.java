import org.quartz.Job;
import org.quartz.JobExecutionContext;
import org.quartz.JobExecutionException;

/**
 * A job of Quartz (2, Java 16) that runs on one host at a time. It needs ../locked.java: put both into one package.
 *
 * <p>{@code @DisallowConcurrentExecution} does this only for schedulers that share a database. An execution is skipped
 * while another one lasts, on any host.
 */
public abstract class RedlockdJob implements Job {
    /** Works. It stops if lock.over.getCount() is 0, or sooner: lock.over.await(…) returns true at a loss. */
    protected abstract void execute(JobExecutionContext context, Locked.Lock lock) throws Exception;

    /** The name of the lock. */
    protected String lockName(JobExecutionContext context) {
        return "quartz/" + context.getJobDetail().getKey();
    }

    @Override
    public final void execute(JobExecutionContext context) throws JobExecutionException {
        boolean began = false;
        try (var lock = new Locked.Lock(lockName(context), "wait=0")) {
            began = true;
            execute(context, lock);
            lock.unlock(); // fails if the lock was lost
        } catch (Exception e) {
            if (began || !(e instanceof Locked.Failure failure) || failure.status != 1) { // not held by another one
                throw new JobExecutionException(e);
            }
        }
    }
}
