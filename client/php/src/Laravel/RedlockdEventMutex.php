<?php

declare(strict_types=1);

namespace Redlockd\Laravel;

use Illuminate\Console\Scheduling\Event;
use Illuminate\Console\Scheduling\EventMutex;
use Redlockd\Client;
use Redlockd\Lease;
use Redlockd\RedlockdException;

/**
 * withoutOverlapping() of scheduled tasks: the lock is held while the scheduler runs the task, and ends with it,
 * however it ends. expiresAt bounds it. In a service provider:
 *
 *     $this->app->bind(EventMutex::class, fn () => new Redlockd\Laravel\RedlockdEventMutex(new Redlockd\Client()));
 */
final class RedlockdEventMutex implements EventMutex
{
    /** @var array<string, Lease> */
    private static array $leases = []; // Laravel makes several mutexes

    public function __construct(private readonly Client $client)
    {
    }

    public function create(Event $event)
    {
        if ($event->runInBackground) {
            throw new \LogicException("\"{$event->mutexName()}\" runs in the background, so its lock would end with the scheduler: run it as \"redlock run NAME -- COMMAND\", or without runInBackground()");
        }
        $lease = $this->client->tryLock($event->mutexName(), max: $event->expiresAt * 60);
        if ($lease !== null) {
            self::$leases[$event->mutexName()] = $lease;
        }

        return $lease !== null;
    }

    public function exists(Event $event)
    {
        return $this->client->isLocked($event->mutexName());
    }

    public function forget(Event $event)
    {
        $lease = self::$leases[$event->mutexName()] ?? null;
        unset(self::$leases[$event->mutexName()]);
        try {
            $lease?->release();
        } catch (RedlockdException $error) { // the task has ended
            error_log("redlockd: {$error->getMessage()}");
        }
    }
}
