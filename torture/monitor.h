// Watches the streams from outside: a thread that sends signals, reports progress and detects
// hangs; and the handler that turns a crash into a report.
#pragma once

namespace torture {

// Handlers of SIGUSR1 and, unless a sanitizer reports them better, of crashes.
void install_handlers();
// Starts the thread, which runs as long as the process.
void start_monitor();

}  // namespace torture
