#!/bin/sh
# The browser of tests/cli/console/test_browser.py, which are skipped without one. Installed only where that is
# expected: by root, on a machine that says CI=true. EPOCHAL_CHROMIUM and EPOCHAL_CHROMEDRIVER name another one.
if [ -n "$EPOCHAL_CHROMIUM$EPOCHAL_CHROMEDRIVER" ]; then exit 0; fi
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if [ "$CI" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium, for the tests of epochal ui"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null \
        && exit 0
    echo "chromium could not be installed"
fi
echo "no chromium and chromedriver: the browser tests of epochal ui are skipped"
