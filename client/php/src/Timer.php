<?php

declare(strict_types=1);

namespace Redlockd;

/** @internal What Core does at a time. */
final class Timer
{
    public function __construct(public readonly float $at, public readonly \Closure $run)
    {
    }
}
