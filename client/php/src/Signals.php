<?php

declare(strict_types=1);

namespace Redlockd;

/**
 * @internal A handler of pcntl_async_signals may throw at any instruction. It comes only while the client waits,
 * and never in the middle of its work.
 */
final class Signals
{
    public const LONGEST = 1.0; // a signal that comes just before a wait does not end it

    private static bool $isMasked = false; // by this class

    /** Returns what restore needs. */
    public static function mask(): bool
    {
        if (!function_exists('pcntl_async_signals') || !pcntl_async_signals()) {
            return false;
        }
        try {
            pcntl_async_signals(false);

            return self::$isMasked = true;
        } catch (\Throwable $error) { // of a handler that came just before
            pcntl_async_signals(true);
            throw $error;
        }
    }

    /** Handles the signals that have come meanwhile, and those to come. */
    public static function restore(bool $was): void
    {
        if ($was) {
            self::$isMasked = false;
            pcntl_async_signals(true);
            pcntl_signal_dispatch();
        }
    }

    public static function areMasked(): bool
    {
        return self::$isMasked;
    }

    /** Runs a function in which signals are handled. */
    public static function interruptibly(\Closure $function): void
    {
        pcntl_async_signals(true);
        try {
            pcntl_signal_dispatch();
            $function();
        } finally {
            pcntl_async_signals(false);
            self::$isMasked = true; // a handler may have used a client
        }
    }
}
