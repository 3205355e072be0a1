<?php

declare(strict_types=1);

namespace Redlockd;

/**
 * Locks of redlockd, the lock daemon of this host.
 *
 *     $client = new Redlockd\Client(); // $REDLOCK_SOCKET, or the default
 *     $client->withLock('nightly-backup', function (Redlockd\Lease $lease) {
 *         backup($lease->fence); // call $lease->check() before each write: it throws Lost
 *     }, wait: 5); // Redlockd\Held, NoQuorum, Denied … after 5 s
 *
 * A client is one connection, for any number of locks; a process needs one. It connects when it is first used.
 * The daemon extends the locks while the connection is open, whatever PHP does meanwhile. A lock that is not
 * released ends with the request or the process. All durations are in seconds.
 */
final class Client
{
    private readonly Connection $connection;
    private readonly string $path;

    /**
     * @param ?string   $path       of the socket; null: $REDLOCK_SOCKET, or the default
     * @param float     $patience   how long calls wait for a redlockd that restarts or hangs, in addition to their wait
     * @param bool      $persistent the next request of this PHP process (php-fpm) uses the same connection. Locks do not last so long.
     * @param ?callable $log        is called with a level of PSR-3 (info, warning) and a text
     */
    public function __construct(?string $path = null, float $patience = 5.0, bool $persistent = true, ?callable $log = null)
    {
        $this->path = Wire::socketPath($path);
        $this->connection = new Connection($this->path, Wire::milliseconds('patience', $patience) / 1000, $persistent, $log === null ? null : $log(...));
    }

    /** A client that is dropped ends its connection, unless a lock is held. Then it ends with the request. */
    public function __destruct()
    {
        if (isset($this->connection) && !$this->connection->core->leases) {
            $this->connection->endRequest();
        }
    }

    /**
     * Takes a lock; several names are taken together, all or none. It throws Held, NoQuorum, Denied and so on.
     *
     * wait: how long to wait for it, 0 for not at all; null: without a bound. onLost is called with the lease if
     * it is lost, in the call of this client that notices it. releaseWait: how long a release waits for its
     * answer; after that it continues in the background, without an error. null: it waits for the client's
     * patience, and then throws Unavailable. The other options are LOCK's in PROTOCOL: ttl, mode, slots, hold,
     * pid, max, min, guard, linger, beat, note.
     *
     * @param string|list<string> $names
     */
    public function lock(string|array $names, mixed ...$options): Lease
    {
        $request = new Request($names, $options);
        $this->connection->checkFork();
        $core = $this->connection->core;
        $call = $core->lock($request);

        return $this->connection->ask($call, static fn () => $core->begin($call))->handle;
    }

    /**
     * As lock(), but returns null if another client holds it. It does not wait, unless wait: says so.
     *
     * @param string|list<string> $names
     */
    public function tryLock(string|array $names, mixed ...$options): ?Lease
    {
        try {
            return $this->lock($names, ...$options + ['wait' => 0]);
        } catch (Held) {
            return null;
        }
    }

    /**
     * Takes a lock, calls a function with the lease, releases the lock, and returns what the function returns. If
     * the lock was lost by then, it throws Lost, unless the function threw.
     *
     * @template T
     *
     * @param string|list<string> $names
     * @param callable(Lease): T  $work
     *
     * @return T
     */
    public function withLock(string|array $names, callable $work, mixed ...$options): mixed
    {
        $signals = Signals::mask(); // none of them comes between the grant and the work, or the work and the release
        try {
            $lease = $this->lock($names, ...$options);
            try {
                try {
                    Signals::restore($signals);
                    $result = $work($lease);
                } finally {
                    $signals = Signals::mask() || $signals;
                }
            } catch (\Throwable $error) {
                try {
                    $this->leave($lease);
                } catch (RedlockdException) { // the exception of the work is what counts
                }
                throw $error;
            }
            $this->leave($lease);

            return $result;
        } finally {
            Signals::restore($signals);
        }
    }

    private function leave(Lease $lease): void
    {
        if (!$lease->cause instanceof Released) { // else the work has released it
            $lease->release();
        }
    }

    /** Continues a lease of hold: 'ttl' that another process passed on with Lease::handOver(). It throws Lost if it has ended. */
    public function takeOver(string $token): Lease
    {
        $this->connection->checkFork();
        $lease = Lease::takenOver($this->connection, $token);
        $core = $this->connection->core;
        $call = $core->resumption($lease);
        $this->connection->ask($call, static fn () => $core->begin($call));

        return $lease;
    }

    /**
     * Does what is due: reads LOST, extends what is known of deadlines, resumes leases after a restart of redlockd,
     * calls onLost. A program with work of long steps that cannot call check() calls this. $seconds: for how long.
     */
    public function poll(float $seconds = 0.0): void
    {
        $this->connection->poll($seconds > 0 ? Wire::clock() + $seconds : null);
    }

    /** Tells whether anyone holds the lock, on any host. Another client may take it right after the answer. */
    public function isLocked(string $name): bool
    {
        return array_filter($this->who($name), static fn ($line) => !isset($line['waiting'])) !== [];
    }

    /**
     * Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO.
     *
     * @return list<array<string, string>>
     */
    public function who(string $name): array
    {
        return $this->question('WHO', Wire::names([$name]))->lines;
    }

    /**
     * Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST.
     *
     * @return list<array<string, string>>
     */
    public function list(): array
    {
        return $this->question('LIST')->lines;
    }

    /**
     * Returns the state of the daemon and its text, and that of each node, as PROTOCOL describes STATUS.
     *
     * @return array{array<string, string>, list<array<string, string>>}
     */
    public function status(): array
    {
        $call = $this->question('STATUS');

        return [($call->reply ?? []) + ['text' => $call->replyText], $call->lines];
    }

    /**
     * Revokes a lock, as PROTOCOL describes FORCE: it needs the right. The holder may continue to work until it
     * notices. It is never sent twice: Unknown if its answer is lost.
     *
     * @return array<string, string>
     */
    public function force(string $name): array
    {
        return $this->question('FORCE', Wire::names([$name]))->reply ?? [];
    }

    /** How many leases a later connection has resumed. */
    public function resumed(): int
    {
        return $this->connection->core->resumed;
    }

    /** Ends all leases, and the connection, also a persistent one. */
    public function close(): void
    {
        $this->connection->close();
    }

    private function question(string $verb, string $words = ''): Call
    {
        $this->connection->checkFork();
        $core = $this->connection->core;
        $call = new Call($verb, $words);

        return $this->connection->ask($call, static fn () => $core->begin($call));
    }

    public function __serialize(): array
    {
        throw new \LogicException('a client cannot be serialized: make one in each process');
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return ['path' => $this->path, 'connected' => $this->connection->core->link > 0];
    }
}
