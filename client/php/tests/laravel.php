<?php

// Tests of the adapters for Laravel with illuminate/cache itself, and a real redlockd -dev, whose socket is
// $REDLOCK_SOCKET. The interfaces of illuminate/console are written down here, from
// github.com/laravel/framework, src/Illuminate/Console/Scheduling: EventMutex.php, SchedulingMutex.php, Event.php.

declare(strict_types=1);

namespace Illuminate\Console\Scheduling {
    class Event
    {
        public $expiresAt = 1440;
        public $runInBackground = false;

        public function __construct(private readonly string $name)
        {
        }

        public function mutexName()
        {
            return 'framework/schedule-' . sha1($this->name);
        }
    }

    interface EventMutex
    {
        public function create(Event $event);

        public function exists(Event $event);

        public function forget(Event $event);
    }

    interface SchedulingMutex
    {
        public function create(Event $event, \DateTimeInterface $time);

        public function exists(Event $event, \DateTimeInterface $time);
    }
}

namespace {
    require __DIR__ . '/testing.php';
    require '/usr/share/php/Illuminate/Cache/autoload.php'; // of Debian's php-illuminate-cache

    use Illuminate\Cache\ArrayStore;
    use Illuminate\Cache\Repository;
    use Illuminate\Console\Scheduling\Event;
    use Illuminate\Contracts\Cache\LockTimeoutException;
    use Redlockd\Client;
    use Redlockd\Laravel\RedlockdEventMutex;
    use Redlockd\Laravel\RedlockdSchedulingMutex;
    use Redlockd\Laravel\RedlockdStore;

    function cache(string $hold = 'ttl'): Repository
    {
        return new Repository(new RedlockdStore(new Client(persistent: false), new ArrayStore(), $hold));
    }

    test('a lock, and values beside it', function (string $name) {
        $lock = cache()->lock($name);
        same(true, $lock->get());
        same(false, cache()->lock($name, 10)->get());
        same(true, $lock->isOwner ?? true);
        $lock->check();
        same(true, $lock->release());
        same(false, $lock->release());
        same(7, cache()->lock($name, 10)->get(static fn () => 7));
        $cache = cache();
        $cache->put('a', 5, 60);
        same(5, $cache->get('a'));
        same(2, $cache->increment('n', 2));
        same(true, $cache->add('b', 1, 60));
    });

    test('block waits, and ends', function (string $name) {
        $held = cache()->lock($name, 10);
        same(true, $held->get());
        throws(LockTimeoutException::class, $name, static fn () => cache()->lock($name, 10)->block(1));
        $held->release();
        same('done', cache()->lock($name, 10)->block(5, static fn () => 'done'));
        throws(DivisionByZeroError::class, '', static fn () => cache()->lock($name, 10)->block(5, static fn () => intdiv(1, 0)));
        same(true, cache()->lock($name)->get());
    });

    test('another process releases it by its owner', function (string $name) {
        $lock = cache()->lock($name, 20);
        same(true, $lock->get());
        $owner = $lock->owner();
        unset($lock);
        same(false, cache()->lock($name)->get());
        same(false, cache()->restoreLock($name, 'somebody')->release());
        run(__FILE__, 'same(true, cache()->restoreLock($argv[1], $argv[2])->release());', $name, $owner);
        same(true, cache()->lock($name)->get());
    });

    test('hold conn: it ends with the process', function (string $name) {
        run(__FILE__, 'same(true, cache("conn")->lock($argv[1], 600)->get());', $name);
        same(true, cache()->lock($name)->get());
        throws(Redlockd\Invalid::class, 'ttl', static fn () => cache()->lock("$name 2", 600)->get());
        throws(InvalidArgumentException::class, "pass 'ttl' or 'conn'", static fn () => cache('pid'));
    });

    test('force release', function (string $name) {
        $lock = cache()->lock($name);
        $lock->get();
        cache()->lock($name)->forceRelease();
        throws(Redlockd\Lost::class, '', $lock->check(...));
        same(false, $lock->release());
    });

    test('withoutOverlapping', function (string $name) {
        $event = new Event($name);
        [$one, $two] = [new RedlockdEventMutex(new Client(persistent: false)), new RedlockdEventMutex(new Client(persistent: false))];
        same(true, $one->create($event));
        same(false, $two->create($event));
        same(true, $two->exists($event));
        $two->forget($event); // another object, as in Laravel
        same(false, $two->exists($event));
        $event->runInBackground = true;
        throws(LogicException::class, 'redlock run', static fn () => $one->create($event));
    });

    test('onOneServer', function (string $name) {
        [$event, $time] = [new Event($name), new DateTimeImmutable('2026-01-01 03:15')];
        [$one, $two] = [new RedlockdSchedulingMutex(new Client(persistent: false)), new RedlockdSchedulingMutex(new Client(persistent: false))];
        same(true, $one->create($event, $time));
        same(false, $two->create($event, $time)); // although the first has ended its work
        same(true, $two->exists($event, $time));
        same(true, $two->create($event, $time->modify('+1 minute')));
    });

    finish();
}
