<?php

declare(strict_types=1);

namespace Redlockd\Laravel;

use Illuminate\Cache\Lock;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Redlockd\Client;
use Redlockd\Held;
use Redlockd\Invalid;
use Redlockd\Lease;
use Redlockd\Lost;
use Redlockd\NotHeld;

/**
 * What Cache::lock($name, $seconds) returns.
 *
 * Without seconds, the lock is held while this process lives, and redlockd extends it. With seconds, at most max_ttl
 * of redlockd's config, nobody extends it, it outlives the process, and another process on this host can release it:
 * owner() is its token for restoreLock(). As a store with 'hold' => 'conn', it ends with the process, and seconds
 * bound how long it is held.
 */
final class RedlockdLock extends Lock
{
    private ?Lease $lease = null;

    public function __construct(private readonly Client $client, string $name, int $seconds, private readonly ?string $token, private readonly string $hold)
    {
        parent::__construct($name, $seconds, $token);
    }

    public function acquire(): bool
    {
        return $this->take(0);
    }

    private function take(int|float $wait): bool
    {
        $options = match (true) {
            $this->seconds <= 0 => [],
            $this->hold === 'ttl' => ['hold' => 'ttl', 'ttl' => (int) $this->seconds],
            default => ['max' => (int) $this->seconds],
        };
        try {
            $this->lease = $this->client->lock((string) $this->name, ...$options, wait: $wait);
        } catch (Held) {
            return false;
        }
        if ($this->lease->hold === 'ttl') {
            $this->owner = $this->lease->handOver();
        }

        return true;
    }

    /** As Laravel's, but redlockd wakes the waiter, in the order of the requests. */
    public function block($seconds, $callback = null)
    {
        if (!$this->take($seconds)) {
            throw new LockTimeoutException("Another process holds the lock \"$this->name\".");
        }
        if (!is_callable($callback)) {
            return true;
        }
        try {
            return $callback();
        } finally {
            $this->release();
        }
    }

    public function release(): bool
    {
        try {
            $this->lease()?->release();
        } catch (Lost | NotHeld) {
            return false;
        }

        return $this->lease !== null;
    }

    /** Revokes the lock from its holder. This needs the right to FORCE. */
    public function forceRelease(): void
    {
        $this->client->force((string) $this->name);
    }

    /** Throws Redlockd\Lost unless the lock is certainly held. Call it before a write. */
    public function check(): void
    {
        ($this->lease() ?? throw new NotHeld("lock \"$this->name\"", 'not held'))->check();
    }

    protected function getCurrentOwner(): string
    {
        try {
            return $this->lease()?->isLost() === false ? (string) $this->owner : '';
        } catch (Lost) {
            return '';
        }
    }

    /** Returns the lease that this object took, or that its owner names. */
    private function lease(): ?Lease
    {
        if ($this->lease === null && $this->token !== null) {
            try {
                $this->lease = $this->client->takeOver($this->token);
            } catch (Invalid) { // a word of the program's own, and not owner() of a lock
                return null;
            }
        }

        return $this->lease;
    }
}
