//! What the torture program prints on stdout, one JSON object a line, and the same as text.

use std::fmt::Write;

use larder_base::number::counted;
use larder_base::printable;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    Start(Start),
    Progress(Progress),
    Clean(Clean),
    Fault(Box<Fault>),
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Start {
    /// The file that malloc comes from.
    pub malloc: String,
    /// Functions of the malloc family that it does not have.
    pub missing: String,
    pub seed: String,
    /// The options that repeat this run.
    pub repeat: String,
}

#[derive(Debug, Deserialize)]
pub struct Progress {
    pub seconds: f64,
    pub operations: u64,
    pub live_bytes: i64,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Clean {
    pub seconds: f64,
    pub operations: u64,
    pub rounds: u64,
    /// Created in total.
    pub threads: u64,
    pub forks: u64,
    pub signals: u64,
    pub peak_live_bytes: i64,
    pub peak_rss_bytes: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Fault {
    pub kind: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Block>,
    /// The options that repeat this run up to the fault.
    pub repeat: String,
}

/// The call that a thread was in.
#[derive(Debug, Deserialize, Serialize)]
pub struct At {
    pub call: String,
    pub size: u64,
    pub align: u64,
    pub address: String,
    pub stream: u64,
    pub round: u64,
    /// Which of the stream's threads, from 1.
    pub generation: u64,
    pub operation: u64,
    /// The kernel's number.
    pub thread: i64,
    pub process: i64,
    /// In a child of fork.
    pub forked: bool,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Block {
    pub address: String,
    pub asked: u64,
    pub usable: u64,
    pub align: u64,
    pub made_by: String,
    pub stream: u64,
    pub round: u64,
    pub number: u64,
}

impl Start {
    pub fn in_words(&self) -> String {
        let mut text = format!("malloc: {}", printable::escape(&self.malloc));
        if !self.missing.is_empty() {
            let _ = write!(text, ", without {}", printable::escape(&self.missing));
        }
        let _ = write!(text, "; seed {}", printable::escape(&self.seed));
        text
    }
}

impl Clean {
    pub fn in_words(&self) -> String {
        let counts = [
            (self.operations, "operation"),
            (self.rounds, "round"),
            (self.threads, "thread"),
            (self.forks, "fork"),
            (self.signals, "signal"),
        ];
        let counts = counts.map(|(count, noun)| counted(count, noun)).join(", ");
        format!(
            "clean: {:.1} s, {counts}, peak {} MiB live, peak RSS {} MiB",
            self.seconds,
            self.peak_live_bytes >> 20,
            self.peak_rss_bytes >> 20
        )
    }
}

impl Fault {
    /// Several lines. `command` is the one that the options in `repeat` belong to.
    pub fn in_words(&self, command: &str) -> String {
        let escape = printable::escape;
        let mut text = format!("fault: {}: {}\n", escape(&self.kind), escape(&self.text));
        if let Some(at) = &self.at {
            let _ = write!(text, "  in      {}", escape(&at.call));
            let _ = write!(text, ", size {}", at.size);
            if at.align != 0 {
                let _ = write!(text, ", alignment {}", at.align);
            }
            if at.address != "0x0" {
                let _ = write!(text, ", of {}", escape(&at.address));
            }
            let _ = write!(
                text,
                "\n  at      round {}, stream {}, operation {}, in thread {} of the stream \
                 (number {}",
                at.round, at.stream, at.operation, at.generation, at.thread
            );
            if at.forked {
                let _ = write!(text, ", in a child of fork");
            }
            text.push_str(")\n");
        }
        for (name, block) in [("block", &self.block), ("other", &self.other)] {
            if let Some(block) = block {
                let _ = writeln!(text, "  {name}   {}", block.in_words());
            }
        }
        let _ = write!(text, "  repeat  {command} {}", escape(&self.repeat));
        text
    }
}

impl Block {
    fn in_words(&self) -> String {
        let mut text = format!(
            "{}, {} bytes requested",
            printable::escape(&self.address),
            self.asked
        );
        // Not known if the fault was found before malloc_usable_size was called.
        if self.usable != 0 {
            let _ = write!(text, ", {} usable", self.usable);
        }
        if self.align != 0 {
            let _ = write!(text, ", alignment {}", self.align);
        }
        let _ = write!(
            text,
            ", allocated by {} as number {} of stream {} in round {}",
            printable::escape(&self.made_by),
            self.number,
            self.stream,
            self.round
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_and_printed() {
        let line = r#"{"fault":{"kind":"overlap","text":"over\u001b","at":{"call":"malloc","size":31,
            "align":0,"address":"0x0","stream":1,"round":2,"generation":3,"operation":4,"thread":5,
            "process":6,"forked":true},"other":{"address":"0x20","asked":9,"usable":16,"align":0,
            "made_by":"calloc","stream":7,"round":8,"number":9},"repeat":"--seed 0x1"}}"#;
        let Message::Fault(fault) = serde_json::from_str(line).unwrap() else {
            panic!("no fault")
        };
        assert_eq!(
            fault.in_words("larder torture"),
            "fault: overlap: over\\x1b\n\
             \x20 in      malloc, size 31\n\
             \x20 at      round 2, stream 1, operation 4, in thread 3 of the stream (number 5, in a \
             child of fork)\n\
             \x20 other   0x20, 9 bytes requested, 16 usable, allocated by calloc as number 9 of stream 7 \
             in round 8\n\
             \x20 repeat  larder torture --seed 0x1"
        );
    }
}
