<?php

// For programs without Composer: require this file.

declare(strict_types=1);

require_once __DIR__ . '/errors.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Redlockd\\')) {
        $file = __DIR__ . '/' . str_replace('\\', '/', substr($class, 9)) . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
