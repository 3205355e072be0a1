<?php

// Tests of the Symfony store with symfony/lock itself, and a real redlockd -dev, whose socket is $REDLOCK_SOCKET.

declare(strict_types=1);

require __DIR__ . '/testing.php';
require '/usr/share/php/Symfony/Component/Lock/autoload.php'; // of Debian's php-symfony-lock

use Redlockd\Client;
use Redlockd\Symfony\RedlockdStore;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\UnserializableKeyException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

// factory returns one whose locks exclude those of the others.
function factory(?float $ttl = null): LockFactory
{
    return new LockFactory(new RedlockdStore(new Client(persistent: false), $ttl));
}

test('locks exclude each other, and are released', function (string $name) {
    [$one, $two] = [factory()->createLock($name), factory()->createLock($name)];
    same(true, $one->acquire());
    same(true, $one->acquire()); // it holds it already
    same(false, $two->acquire());
    same(true, $one->isAcquired());
    same(false, $two->isAcquired());
    $one->refresh();
    $one->release();
    same(false, $one->isAcquired());
    same(true, $two->acquire(true));
    throws(LockConflictedException::class, '', static fn () => $one->refresh());
});

test('a dropped lock is released', function (string $name) {
    $one = factory()->createLock($name);
    $one->acquire();
    unset($one);
    same(true, factory()->createLock($name)->acquire());
});

test('readers share it, and a writer waits', function (string $name) {
    [$one, $two, $writer] = [factory()->createLock($name), factory()->createLock($name), factory()->createLock($name)];
    same(true, $one->acquireRead());
    same(true, $two->acquireRead(true));
    same(false, $writer->acquire());
    $one->release();
    same(true, $two->acquire()); // becomes a writer
    same(false, $writer->acquireRead());
    same(true, $two->acquireRead()); // becomes a reader
    same(true, $one->acquireRead());
});

test('a key is passed to another process', function (string $name) {
    $key = new Key($name);
    $here = factory(20.0)->createLockFromKey($key, 15.0, false);
    same(true, $here->acquire());
    atMost(20.0, $here->getRemainingLifetime());
    $code = '$lock = factory(20.0)->createLockFromKey(unserialize(base64_decode($argv[1])), 15.0, false);'
        . 'same(true, $lock->isAcquired()); $lock->refresh(10); same(false, factory()->createLock($argv[2])->acquire()); $lock->release();';
    unset($here);
    same(false, factory()->createLock($name)->acquire()); // it was not released
    run(__FILE__, $code, base64_encode(serialize($key)), $name);
    same(true, factory()->createLock($name)->acquire());
    throws(LockConflictedException::class, '', static fn () => factory(20.0)->createLockFromKey(unserialize(serialize($key)), 15.0, false)->refresh());
});

test('a key of this process is not passed on', function (string $name) {
    $key = new Key($name);
    factory()->createLockFromKey($key, null, false)->acquire();
    throws(UnserializableKeyException::class, '', static fn () => serialize($key));
});

test('a ttl that redlockd refuses, and no redlockd', function (string $name) {
    $error = throws(LockAcquiringException::class, '', static fn () => factory(300.0)->createLock($name)->acquire());
    contains('ttl', $error->getPrevious()->getMessage());
    $factory = new LockFactory(new RedlockdStore(new Client('/nonexistent', persistent: false)));
    $error = throws(LockAcquiringException::class, '', static fn () => $factory->createLock($name)->acquire());
    contains('is redlockd running', $error->getPrevious()->getMessage());
});

finish();
