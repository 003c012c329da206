//! What ends a command of the lab. An error of one module is beside its code, and is wrapped here or
//! fatal by itself.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use larder_base::error::BaseError;
use larder_base::failure::Fatal;
use larder_base::installed::PROGRAMS_VARIABLE;
use larder_base::printable::{escape, name};
use larder_trace::TraceError;

use crate::bench::allocators::AllocatorError;
use crate::bench::manifest::ManifestError;
use crate::bench::results::ResultsError;
use crate::instruments::callgrind::ProfileError;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Arguments that clap takes and the command does not.
    #[error("{0}")]
    Usage(Cow<'static, str>),
    #[error("--quick --rounds {given}: a comparison has at least {least} rounds")]
    Rounds { given: u32, least: u32 },
    #[error("--scale {0}: give a factor above 0 and at most 1000")]
    Scale(f64),
    #[error("--{option} {value}: give numbers from {low} to {high}, with commas")]
    OutOfBounds {
        option: &'static str,
        value: usize,
        low: usize,
        high: usize,
    },
    #[error("--{0}: give one number at least")]
    NoNumber(&'static str),
    #[error(
        "--only '{}': {}: give a regular expression",
        escape(pattern),
        escape(cause)
    )]
    Only { pattern: String, cause: String },
    #[error(transparent)]
    Allocator(#[from] AllocatorError),
    #[error(transparent)]
    Base(#[from] BaseError),

    #[error("{}: {}: correct the file", name(path), escape(&cause.to_string()))]
    Manifest { path: PathBuf, cause: ManifestError },
    #[error(
        "{}: {}: give a results.json that `larder bench` wrote",
        name(path),
        escape(&cause.to_string())
    )]
    Results { path: PathBuf, cause: ResultsError },
    #[error(
        "{} cannot be joined with {}: {}: report them one by one",
        name(path),
        name(first),
        escape(&cause.to_string())
    )]
    NotJoined {
        path: PathBuf,
        first: PathBuf,
        cause: ResultsError,
    },
    #[error("the recording cannot be read: {0}")]
    Recording(TraceError),
    #[error("{}: {lack}", name(trace))]
    Unfit { trace: PathBuf, lack: &'static str },
    #[error(
        "{file} is not in {}: run `make peers` and use out/bin/larder, or set {PROGRAMS_VARIABLE} \
         to the directory that holds bench/{file}",
        name(directory)
    )]
    NoPeers { file: String, directory: PathBuf },
    #[error(
        "{program} is not in {}: run `make build` and use out/bin/larder, or set \
         {PROGRAMS_VARIABLE} to the directory that holds {program}",
        name(directory)
    )]
    NotBuilt {
        program: &'static str,
        directory: PathBuf,
    },
    #[error("{command} is not installed: apt-get install {package}")]
    NotInstalled {
        command: &'static str,
        package: &'static str,
    },
    /// Programs of the workloads.
    #[error("{0}")]
    Missing(String),
    #[error("{launch} takes more than {} s: give it longer with --run-limit", limit.as_secs())]
    Late { launch: String, limit: Duration },
    /// `said` is empty, or its last line after a colon.
    #[error("{launch} failed with {}{said}", describe(*status))]
    Failed {
        launch: String,
        status: ExitStatus,
        said: String,
    },
    /// A run that was not made, or gives no figures.
    #[error("{0}")]
    NoRun(String),
    #[error("{0}")]
    OtherMalloc(String),
    #[error(
        "{program} printed no {figure}: it is of another version; stage the programs again with \
         `make peers`"
    )]
    NoFigure { program: String, figure: String },
    /// The tool and the program that it runs are not of one build.
    #[error("{0}")]
    OtherBuild(String),
    #[error("callgrind's output {}: {}: check that valgrind works", name(path), escape(&cause.to_string()))]
    Profile { path: PathBuf, cause: ProfileError },
    /// What strace or objdump printed.
    #[error("{0}")]
    NotUnderstood(String),
}

impl LabError {
    pub fn usage(fault: impl Into<Cow<'static, str>>) -> Self {
        Self::Usage(fault.into())
    }
}

impl Fatal for LabError {}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or(-1)),
    }
}

pub type Result<T> = std::result::Result<T, LabError>;

#[cfg(test)]
mod tests {
    use crate::bench::manifest::WordError;

    use super::*;

    #[test]
    fn a_sentence_has_the_place_and_the_remedy() {
        let manifest = |cause| LabError::Manifest {
            path: "workloads.toml".into(),
            cause,
        };
        let syntax = |line| {
            let message = "a\tb".to_owned();
            manifest(ManifestError::Syntax { line, message })
        };
        let word = ManifestError::Word {
            workload: "w".to_owned(),
            word: "{x}".to_owned(),
            cause: WordError::Placeholder("x".to_owned()),
        };
        let joined = LabError::NotJoined {
            path: "b.json".into(),
            first: "a.json".into(),
            cause: ResultsError::Build("glibc".to_owned()),
        };
        for (error, sentence) in [
            (
                syntax(Some(3)),
                "workloads.toml: near line 3: a\\tb: correct the file",
            ),
            (syntax(None), "workloads.toml: a\\tb: correct the file"),
            (
                manifest(word),
                "workloads.toml: workload w: '{x}': there is no placeholder {x}; there are {bench}, \
                 {scratch}, {scale} and {scale*N}: correct the file",
            ),
            (
                joined,
                "b.json cannot be joined with a.json: has another build of glibc: report them one \
                 by one",
            ),
        ] {
            assert_eq!(error.to_string(), sentence);
        }
    }
}
