<?php

declare(strict_types=1);

namespace Redlockd;

/**
 * A lock that is held, until it is released or lost, or the request or process ends.
 *
 * PHP has no threads: a loss is noticed in check(), isLost() and every other call of the client, and not
 * between them.
 */
final class Lease
{
    /** @var list<string> */
    public readonly array $names;
    public readonly string $name;
    /** The fencing token: larger than those of all earlier holders of the lock. */
    public readonly int $fence;
    public readonly int $slot;

    /** @internal */
    public string $id;
    /** @internal */
    public readonly string $hold;
    /** @internal */
    public string $owner;
    /** @internal */
    public readonly string $what;
    /** @internal why it ended; null while it is held */
    public ?RedlockdException $cause = null;
    /** @internal */
    public float $deadline = 0.0;
    /** @internal */
    public float $guard = 0.0;
    /** @internal a deadline from here on is caused by max=; 0: no bound */
    public float $bound = 0.0;
    /** @internal */
    public ?Timer $timer = null;
    /** @internal */
    public bool $checking = false;
    /** @internal a CHECK, because this process noticed the deadline late */
    public ?Call $doubt = null;
    /** @internal its connection has ended, and no other one has resumed it yet */
    public bool $detached = false;
    /** @internal a process holds it, and the connection that would report its loss has ended */
    public bool $unwatched = false;
    /** @internal RESUME was refused, but the daemon may keep it */
    public bool $maybeKept = false;
    /** @internal lost here, but the daemon may keep it: unlock it at the deadline */
    public bool $unlockDue = false;
    /** @internal the holder has stopped */
    public bool $unlocking = false;
    /** @internal another process took it, and this one has not resumed it yet */
    public bool $isTakenOver = false;
    /** @internal */
    public readonly ?\Closure $onLost;

    private readonly float $ownGuard;
    private readonly ?float $releaseWait;
    private float $ttl;
    private float $longest = 0.0;
    private bool $isForked = false;

    /** @param list<string> $names */
    private function __construct(private readonly Connection $connection, array $names, string $id, string $owner, int $fence, int $slot, string $hold, ?Request $request)
    {
        $this->names = $names;
        $this->name = implode(',', $names);
        $this->what = "lease \"$this->name\"";
        $this->id = $id;
        $this->owner = $owner;
        $this->fence = $fence;
        $this->slot = $slot;
        $this->hold = $hold;
        $this->onLost = $request?->onLost;
        $this->ownGuard = $request->guard ?? 0.0;
        $this->ttl = $request->ttl ?? 0.0;
        $this->releaseWait = $request?->releaseWait;
    }

    /**
     * @internal
     *
     * @param array<string, string> $reply
     */
    public static function granted(Connection $connection, Call $call, array $reply): self
    {
        $request = $call->request;

        return new self($connection, $request->names, $reply['lease'], $call->owner, Wire::number($reply, 'fence'), Wire::number($reply, 'slot'), $request->hold, $request);
    }

    /** @internal */
    public static function takenOver(Connection $connection, string $token): self
    {
        $parts = json_decode($token, true);
        if (!is_array($parts) || array_map(get_debug_type(...), $parts) !== ['array', 'string', 'string', 'int', 'int']) {
            throw new Invalid('', 'this is no token of Lease::handOver()');
        }
        Wire::names($parts[0]);
        if (preg_match('/\A[A-Za-z0-9_-]+\z/', $parts[1]) !== 1 || preg_match('/\A[0-9a-f.]*\z/', $parts[2]) !== 1) {
            throw new Invalid('', 'this is no token of Lease::handOver()'); // and no other request of the protocol
        }
        $lease = new self($connection, $parts[0], $parts[1], $parts[2], $parts[3], $parts[4], 'ttl', null);
        $lease->isTakenOver = true;

        return $lease;
    }

    /**
     * Returns a token with which another process continues a lease of hold: 'ttl' (Client::takeOver). It is a
     * secret: a program that has it can release the lock. From then on only one of the two may use the lease.
     */
    public function handOver(): string
    {
        if ($this->hold !== 'ttl') {
            throw new \LogicException("$this->what ends with this process: take it with hold: 'ttl' to pass it on");
        }

        return (string) json_encode([$this->names, $this->id, $this->owner, $this->fence, $this->slot], JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
    }

    /**
     * Throws Lost unless the lease is certainly held for longer than its guard. It reads the clock and what is
     * in the socket. It waits only if it cannot know: for a second at most if redlockd was restarted, or if
     * this process did not call check() until the deadline that it knows.
     */
    public function check(): void
    {
        $this->connection->settle($this);
        if ($this->cause === null && Wire::clock() >= $this->endAt()) {
            $this->connection->core->expire($this);
            $this->connection->tell();
        }
        if ($this->cause !== null) {
            throw Wire::again($this->cause);
        }
    }

    /** Tells whether it has ended, by a loss or a release. */
    public function isLost(): bool
    {
        try {
            $this->check();
        } catch (RedlockdException) {
            return true;
        }

        return false;
    }

    /** Returns for how many seconds the lease is certainly held, unless it is extended. It reads only the clock. */
    public function remaining(): float
    {
        $this->connection->checkFork();

        return $this->cause !== null || $this->doubt !== null ? 0.0 : max(0.0, $this->deadline - Wire::clock());
    }

    /**
     * Releases the lock. It throws Lost if the lease was lost before. In a child of the process that holds it,
     * it does nothing. $wait: how long to wait for the answer; after that it continues in the background, without
     * an error. null: releaseWait of the lock.
     */
    public function release(?float $wait = null): void
    {
        $this->connection->checkFork();
        if ($this->isForked) {
            return;
        }
        $seconds = $wait === null ? $this->releaseWait : Wire::milliseconds('wait', $wait) / 1000;
        $this->connection->poll();
        $core = $this->connection->core;
        $call = $core->about('UNLOCK', $this);
        try {
            $this->connection->ask($call, fn () => $core->release($call, $this), $seconds);
        } catch (Unavailable $error) {
            if ($seconds === null) {
                throw $error;
            }
            $this->connection->log('warning', $error->getMessage() . ' (it is still being released)');
        }
    }

    /** Extends a lease of hold: 'ttl' now, or changes the ttl. */
    public function extend(?float $ttl = null): void
    {
        $this->ask('EXTEND', $ttl === null ? '' : ' ttl=' . Wire::milliseconds('ttl', $ttl));
    }

    /** Tells the daemon that the work makes progress, for a lease with beat:. */
    public function beat(): void
    {
        $this->ask('BEAT');
    }

    /** Makes an exclusive lease a shared one. */
    public function downgrade(): void
    {
        $this->ask('EXTEND', ' mode=shared');
    }

    private function ask(string $verb, string $options = ''): void
    {
        $this->connection->poll();
        if ($this->cause !== null) {
            throw Wire::again($this->cause);
        }
        $core = $this->connection->core;
        $call = $core->about($verb, $this, $options);
        $this->connection->ask($call, static fn () => $core->begin($call));
    }

    public function __serialize(): array
    {
        throw new \LogicException('a lease cannot be serialized: handOver() passes one to another process');
    }

    /** @return array<string, mixed> without the id, which is a secret */
    public function __debugInfo(): array
    {
        return ['name' => $this->name, 'fence' => $this->fence, 'remaining' => $this->remaining(), 'cause' => $this->cause?->getMessage()];
    }

    /** @internal */
    public function endAt(): float
    {
        return $this->deadline - $this->guard;
    }

    /**
     * @internal Sets a later deadline. Answers can overtake each other, so an earlier one is older. $since: when
     * the socket was last empty, which is before the daemon wrote the answer.
     *
     * @param array<string, string> $reply
     */
    public function extended(array $reply, float $now, float $ahead, float $since): void
    {
        $left = Wire::number($reply, 'ttl') / 1000;
        $at = Wire::number($reply, 'deadline') / 1000;
        if ($at > 0) {
            $at = Wire::hasBoottime() ? $at - $ahead : $since + $left;
            $this->deadline = max($this->deadline, min($at, $now + $left + 0.001));
        }
        $this->longest = max($this->longest, $left);
        $said = Wire::number($reply, 'guard') / 1000 ?: ($this->ttl ?: $this->longest) / 5;
        $this->guard = $this->ownGuard ?: min($said, $this->longest / 5);
    }

    /** @internal The ttl has changed. */
    public function forgetTtl(): void
    {
        $this->ttl = $this->longest = 0.0;
    }

    /** @internal Ends the child's part in a lease of its parent. */
    public function forkAway(): void
    {
        $this->isForked = true;
        $this->cause = new Lost($this->what, 'this process was forked from the one that holds it: take a lock of its own');
    }
}
