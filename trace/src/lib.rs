//! The trace format: written down once, for the recorder and the tool.
