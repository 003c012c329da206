// What watches from outside the streams: a thread that interrupts them with signals, tells the
// progress, and finds who hangs; and the handler that turns a crash into a report.
#pragma once

namespace torture {

// Handlers of SIGUSR1 and, unless a sanitizer reports them better, of crashes.
void install_handlers();
// Starts the thread, which lives as long as the process.
void start_monitor();

}  // namespace torture
