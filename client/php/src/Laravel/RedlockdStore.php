<?php

declare(strict_types=1);

namespace Redlockd\Laravel;

use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Cache\LockProvider;
use Illuminate\Contracts\Cache\Store;
use Redlockd\Client;

/**
 * A cache whose locks are in redlockd, and whose values are in another store. In a service provider:
 *
 *     Cache::extend('redlockd', fn ($app, $config) => Cache::repository(new Redlockd\Laravel\RedlockdStore(
 *         new Redlockd\Client(), Cache::store($config['values'])->getStore(), $config['hold'] ?? 'ttl')));
 */
final class RedlockdStore extends TaggableStore implements LockProvider
{
    public function __construct(private readonly Client $client, private readonly Store $values, private readonly string $hold = 'ttl')
    {
        if ($hold !== 'ttl' && $hold !== 'conn') {
            throw new \InvalidArgumentException("hold: \"$hold\": pass 'ttl' or 'conn'");
        }
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        return new RedlockdLock($this->client, $this->getPrefix() . $name, (int) $seconds, $owner, $this->hold);
    }

    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }

    public function get($key)
    {
        return $this->values->get($key);
    }

    public function many(array $keys)
    {
        return $this->values->many($keys);
    }

    public function put($key, $value, $seconds)
    {
        return $this->values->put($key, $value, $seconds);
    }

    public function putMany(array $values, $seconds)
    {
        return $this->values->putMany($values, $seconds);
    }

    public function increment($key, $value = 1)
    {
        return $this->values->increment($key, $value);
    }

    public function decrement($key, $value = 1)
    {
        return $this->values->decrement($key, $value);
    }

    public function forever($key, $value)
    {
        return $this->values->forever($key, $value);
    }

    public function forget($key)
    {
        return $this->values->forget($key);
    }

    public function flush()
    {
        return $this->values->flush();
    }

    public function getPrefix()
    {
        return $this->values->getPrefix();
    }

    /** Newer versions of the interface have more methods, such as touch(). */
    public function __call(string $method, array $arguments): mixed
    {
        return $this->values->$method(...$arguments);
    }
}
