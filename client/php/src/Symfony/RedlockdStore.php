<?php

declare(strict_types=1);

namespace Redlockd\Symfony;

use Redlockd\Client;
use Redlockd\Held;
use Redlockd\Lease;
use Redlockd\Lost;
use Redlockd\NotHeld;
use Redlockd\RedlockdException;
use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;

/**
 * Stores the locks of symfony/lock (5.4 or later) in redlockd.
 *
 *     $factory = new Symfony\Component\Lock\LockFactory(new Redlockd\Symfony\RedlockdStore(new Redlockd\Client()));
 *
 * Without a ttl, a lock is held while this process lives, and redlockd extends it: the ttl of createLock() has no
 * meaning, and a Key cannot be serialized. With a ttl, in seconds and at most max_ttl of redlockd's config, nobody
 * extends it but refresh(), it outlives the process, and its Key can be passed to another process on this host.
 */
final class RedlockdStore implements BlockingSharedLockStoreInterface, BlockingStoreInterface
{
    /** @var \WeakMap<Key, Lease> */
    private \WeakMap $leases;

    public function __construct(private readonly Client $client, private readonly ?float $ttl = null)
    {
        $this->leases = new \WeakMap();
    }

    public function save(Key $key): void
    {
        $this->take($key, 'exclusive', 0.0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->take($key, 'exclusive', null);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, 'shared', 0.0);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->take($key, 'shared', null);
    }

    private function take(Key $key, string $mode, ?float $wait): void
    {
        try {
            $lease = $this->find($key);
            if ($lease !== null && $key->getState(self::class . '.mode') === $mode) {
                $lease->check(); // this key holds it already

                return;
            }
            if ($lease !== null && $mode === 'shared') {
                $lease->downgrade();
                $key->setState(self::class . '.mode', $mode);

                return;
            }
            // A reader that becomes a writer lets others in between: the lock could wait for itself otherwise.
            $lease?->release();
        } catch (Lost | NotHeld) { // it has ended: a new grant
        } catch (RedlockdException $error) {
            throw self::failure($error);
        }
        $this->forget($key);
        try {
            $options = $this->ttl === null ? [] : ['hold' => 'ttl', 'ttl' => $this->ttl];
            $lease = $this->client->lock((string) $key, ...$options, mode: $mode, wait: $wait);
        } catch (Held $error) {
            throw new LockConflictedException($error->getMessage(), 0, $error);
        } catch (RedlockdException $error) {
            throw self::failure($error);
        }
        $this->leases[$key] = $lease;
        if ($this->ttl === null) {
            $key->markUnserializable();
            $key->setState(self::class, true);
        } else {
            $key->setState(self::class, $lease->handOver());
            $key->reduceLifetime($lease->remaining());
        }
        $key->setState(self::class . '.mode', $mode);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        try {
            $lease = $this->find($key) ?? throw new LockConflictedException("$key is not held");
            if ($this->ttl === null) {
                $lease->check(); // redlockd extends it

                return;
            }
            $lease->extend($ttl);
        } catch (Lost | NotHeld $error) {
            throw new LockConflictedException($error->getMessage(), 0, $error);
        } catch (RedlockdException $error) {
            throw self::failure($error);
        }
        $key->reduceLifetime($lease->remaining());
    }

    public function exists(Key $key): bool
    {
        try {
            return $this->find($key)?->isLost() === false;
        } catch (Lost) {
            return false;
        } catch (RedlockdException $error) {
            throw self::failure($error);
        }
    }

    public function delete(Key $key): void
    {
        try {
            $this->find($key)?->release();
        } catch (Lost | NotHeld) { // it has ended
        } catch (RedlockdException $error) {
            throw new LockReleasingException($error->getMessage(), 0, $error);
        } finally {
            $this->forget($key);
        }
    }

    /** Returns the lease of a key. The key may come from another process, or be a copy of one. */
    private function find(Key $key): ?Lease
    {
        if (!isset($this->leases[$key]) && $key->hasState(self::class) && is_string($key->getState(self::class))) {
            $this->leases[$key] = $this->client->takeOver($key->getState(self::class));
        }

        return $this->leases[$key] ?? null;
    }

    private function forget(Key $key): void
    {
        unset($this->leases[$key]);
        $key->removeState(self::class);
        $key->removeState(self::class . '.mode');
    }

    private static function failure(RedlockdException $error): LockStorageException
    {
        return new LockStorageException($error->getMessage(), 0, $error);
    }
}
