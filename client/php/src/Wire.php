<?php

declare(strict_types=1);

namespace Redlockd;

/** @internal Lines of the protocol and options. It does no I/O, apart from the clock. */
final class Wire
{
    public const DEFAULT_SOCKET = '/run/redlockd/redlockd.sock';
    public const MAX_LINE = 1 << 16; // the daemon's lines have at most 4,096 bytes
    public const MAX_SOCKET_PATH = 107; // bytes
    public const LEAD = 0.011; // by which clock may be early: /proc/uptime has hundredths of a second

    private static ?bool $hasUptime = null;

    /** Tells whether clock is the clock of deadline=. */
    public static function hasBoottime(): bool
    {
        return self::$hasUptime ??= PHP_OS_FAMILY === 'Linux' && (float) self::quietly(static fn () => file_get_contents('/proc/uptime')) > 0;
    }

    /**
     * Returns the time since the boot of this host, in seconds: the latest that it can be. PHP has no
     * CLOCK_BOOTTIME, but /proc/uptime has. Elsewhere it is a monotonic clock.
     */
    public static function clock(): float
    {
        return self::hasBoottime() ? (float) file_get_contents('/proc/uptime') + self::LEAD : hrtime(true) / 1e9;
    }

    /** Runs a function without PHP's warnings, whatever handler the program has. */
    public static function quietly(callable $function): mixed
    {
        set_error_handler(static fn () => true);
        try {
            return $function();
        } finally {
            restore_error_handler();
        }
    }

    /**
     * Reads a line without its LF. Unknown fields and events are kept.
     *
     * @return array{tag: string, kind: string, code: string, fields: array<string, string>, text: string}
     */
    public static function parse(string $raw): array
    {
        if (preg_match('//u', $raw) !== 1) {
            throw new ProtocolError('a line is not UTF-8');
        }
        $raw = str_ends_with($raw, "\r") ? substr($raw, 0, -1) : $raw;
        [$head, $text] = explode(' : ', $raw, 2) + [1 => ''];
        $words = array_values(array_filter(explode(' ', $head), static fn ($word) => $word !== '')); // other white space of Unicode belongs to a value
        $tag = str_starts_with($head, '@') ? substr(array_shift($words), 1) : '';
        $kind = array_shift($words) ?? '';
        $code = $kind === 'ERR' ? array_shift($words) ?? '' : '';
        $isEvent = $tag === '' && $kind !== 'ERR' && preg_match('/\A[A-Z]+\z/', $kind) === 1;
        if ($kind !== 'OK' && $kind !== '-' && $code === '' && !$isEvent) {
            throw new ProtocolError(json_encode(substr($raw, 0, 80), JSON_INVALID_UTF8_SUBSTITUTE) . ' is neither OK, ERR, - nor an event');
        }
        $fields = [];
        foreach ($words as $word) {
            if ($word === ':') { // an empty text
                break;
            }
            if (!str_contains($word, '=')) {
                throw new ProtocolError(json_encode(substr($word, 0, 80), JSON_INVALID_UTF8_SUBSTITUTE) . ' is not key=value');
            }
            [$key, $value] = explode('=', $word, 2);
            $fields[$key] = rawurldecode($value);
        }

        return ['tag' => $tag, 'kind' => $kind, 'code' => $code, 'fields' => $fields, 'text' => $text];
    }

    /** @param array{code: string, fields: array<string, string>, text: string} $parsed */
    public static function refusal(string $what, array $parsed): RedlockdException
    {
        $code = $parsed['code'];
        $kind = RedlockdException::classOf($code);
        $said = $parsed['text'] === '' ? 'refused by redlockd' : $parsed['text'];
        $text = $kind === Held::class || $kind === Lost::class || str_contains($said, $code) ? $said : "$code: $said";

        return new $kind($what, $text, $parsed['fields'], $code);
    }

    /** Returns the same error for another caller, with a trace of its own. */
    public static function again(RedlockdException $error, ?string $what = null): RedlockdException
    {
        if ($what === null) {
            $what = substr($error->getMessage(), 0, -strlen(": $error->text")) ?: '';
        }
        $kind = $error::class;

        return new $kind($what, $error->text, $error->fields, $error->errorCode);
    }

    /**
     * Returns a field, or 0 if it is missing or not a number.
     *
     * @param array<string, string> $fields
     */
    public static function number(array $fields, string $key): int
    {
        $value = $fields[$key] ?? '';

        return preg_match('/\A-?[0-9]+\z/', $value) === 1 ? (int) $value : 0;
    }

    /** Writes spaces, control characters, "=", ",", and "%" as %XX. */
    public static function escape(string $text): string
    {
        return (string) preg_replace_callback(
            '/[\x{0}- =,%\x{7f}-\x{9f}]/u',
            static fn ($found) => implode('', array_map(static fn ($byte) => sprintf('%%%02X', ord($byte)), str_split($found[0]))),
            $text,
        );
    }

    public static function utf8(string $what, mixed $value): string
    {
        if (!is_string($value)) {
            throw new \TypeError("$what is " . get_debug_type($value) . ': pass a string');
        }
        if (preg_match('//u', $value) !== 1) {
            throw new Invalid('', "$what " . json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE) . ' is not UTF-8: write its bytes as hex (bin2hex)', [], 'NAME');
        }

        return $value;
    }

    /**
     * Returns names as a request has them.
     *
     * @param array<mixed> $names
     */
    public static function names(array $names): string
    {
        if (count($names) < 1 || count($names) > 100) {
            throw new Invalid('', count($names) . " names: 1 to 100 can be locked together, as lock(['a', 'b'])", [], 'NAME');
        }
        foreach ($names as $name) {
            $size = strlen(self::utf8('name', $name));
            if ($size < 1 || $size > 200) {
                throw new Invalid('', 'the name ' . json_encode(substr($name, 0, 50), JSON_INVALID_UTF8_SUBSTITUTE) . " has $size bytes: 1 to 200 are allowed", [], 'NAME');
            }
        }
        $joined = implode(',', array_map(self::escape(...), $names));
        if (strlen($joined) > 3000) {
            throw new Invalid('', 'the names have ' . strlen($joined) . ' bytes together: at most 3000', [], 'NAME');
        }

        return $joined;
    }

    /** Returns a duration that was given in seconds, rounded up. */
    public static function milliseconds(string $option, mixed $value): int
    {
        if (!is_int($value) && !is_float($value)) {
            throw new \TypeError("$option: " . get_debug_type($value) . ": pass seconds, such as $option: 5 or $option: 0.25");
        }
        if (!($value >= 0 && $value <= 1e9)) {
            $hint = $option === 'wait' ? 'null waits without a bound' : "leave it out for the daemon's default";
            throw new Invalid('', "$option: $value: pass seconds from 0 to 1e9 ($hint)");
        }

        return (int) ceil(round($value * 1000, 6));
    }

    public static function socketPath(?string $path): string
    {
        $path = ($path ?? '') ?: (getenv('REDLOCK_SOCKET') ?: self::DEFAULT_SOCKET);
        if (str_contains($path, '://')) {
            throw new Invalid('', "$path is a URL: redlockd listens on a Unix socket of this host, give the path of the socket");
        }

        return $path;
    }

    /**
     * Returns the error of a failed connect, and whether another attempt would fail the same way.
     *
     * @return array{RedlockdException, bool}
     */
    public static function dialError(string $path, int $errno, string $why): array
    {
        $where = "redlockd's socket $path";
        $to = 'set the path or REDLOCK_SOCKET to that of redlockd (' . self::DEFAULT_SOCKET . ')';
        if (strlen($path) > self::MAX_SOCKET_PATH) {
            return [new Invalid('', "$where has " . strlen($path) . ' bytes: a path of a socket has at most ' . self::MAX_SOCKET_PATH), true];
        }
        if ($errno === 13 || $errno === 1) { // EACCES, EPERM
            return [new Denied('', "not allowed to open $where: this user is not in the group of the socket ($why)"), true];
        }
        $stat = self::quietly(static fn () => stat($path));
        if ($stat !== false && ($stat['mode'] & 0170000) !== 0140000) {
            return [new Invalid('', "$path is not a socket: $to"), true];
        }
        if ($errno === 91) { // EPROTOTYPE
            return [new Invalid('', "$path is not a stream socket: $to"), true];
        }
        if ($errno === 2 || $errno === 111) { // ENOENT, ECONNREFUSED
            return [new Unavailable('', "nobody listens on $where: is redlockd running? ($why)"), false];
        }
        if ($errno === 11) { // EAGAIN
            return [new Unavailable('', "$where takes no more connections: redlockd hangs, or is busy"), false];
        }

        return [new Unavailable('', "$where: $why"), false];
    }
}
