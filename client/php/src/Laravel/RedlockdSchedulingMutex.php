<?php

declare(strict_types=1);

namespace Redlockd\Laravel;

use Illuminate\Console\Scheduling\Event;
use Illuminate\Console\Scheduling\SchedulingMutex;
use Redlockd\Client;

/**
 * onOneServer() of scheduled tasks: one scheduler gets the lock of the task and its time, and the lock stays taken
 * for an hour (min= of LOCK), so that no later one gets it. In a service provider:
 *
 *     $this->app->bind(SchedulingMutex::class, fn () => new Redlockd\Laravel\RedlockdSchedulingMutex(new Redlockd\Client()));
 */
final class RedlockdSchedulingMutex implements SchedulingMutex
{
    private const STAYS = 3600; // seconds, as Laravel's

    public function __construct(private readonly Client $client)
    {
    }

    public function create(Event $event, $time)
    {
        $lease = $this->client->tryLock(self::name($event, $time), min: self::STAYS);
        $lease?->release();

        return $lease !== null;
    }

    public function exists(Event $event, $time)
    {
        return $this->client->isLocked(self::name($event, $time));
    }

    private static function name(Event $event, \DateTimeInterface $time): string
    {
        return $event->mutexName() . $time->format('Hi');
    }
}
