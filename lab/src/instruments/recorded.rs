//! Real programs for `larder lab recording` and `larder lab stacks`: a compiler, a database, an
//! interpreter, a solver. Their input is generated in the scratch folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_base::failure::Result;
use larder_base::measured::scratch_failure;

use super::programs;

/// A program, and how to start it.
#[derive(Debug)]
pub struct Recorded {
    pub name: &'static str,
    pub words: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// The programs that are installed, and the packages of the others.
pub fn find(scratch: &Path, scale: f64) -> Result<(Vec<Recorded>, Vec<String>)> {
    let all = [
        compiler(scratch)?,
        database(scratch, scale)?,
        interpreter(scale),
    ];
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for program in all {
        match program {
            Ok(program) => found.push(program),
            Err(package) => absent.push(package),
        }
    }
    let absent = absent
        .into_iter()
        .map(|package| format!("Left out because it is not installed: {package}."));
    Ok((found, absent.collect()))
}

/// A program, or the package that contains it.
type Maybe = std::result::Result<Recorded, &'static str>;

/// g++'s compiler proper, so that the driver's time is not measured.
pub fn compiler_itself() -> Option<String> {
    let path = answer("g++", &["-print-prog-name=cc1plus"])?;
    Path::new(&path).is_file().then_some(path)
}

/// The interpreter's path: the name may lead to a script that starts it.
pub fn interpreter_itself() -> Option<PathBuf> {
    let path = answer("python3", &["-c", "import sys; print(sys.executable)"])?;
    fs::canonicalize(path).ok()
}

fn compiler(scratch: &Path) -> Result<Maybe> {
    const SOURCE: &str = "#include <map>\n#include <string>\n\
        int count(const std::string& text) {\n\
        std::map<std::string, int> words;\n\
        for (std::size_t at = 0; at < text.size(); at += 8) words[text.substr(at, 8)]++;\n\
        return static_cast<int>(words.size());\n}\n";
    let (source, plain) = (scratch.join("words.cc"), scratch.join("words.ii"));
    fs::write(&source, SOURCE)
        .map_err(|error| scratch_failure("a program for the compiler", error))?;
    let preprocessed = Command::new("g++")
        .args(["-E".as_ref(), "-o".as_ref(), plain.as_os_str()])
        .arg(&source)
        .stderr(Stdio::null())
        .status();
    let ready = preprocessed.is_ok_and(|status| status.success());
    Ok(match compiler_itself() {
        Some(path) if ready => Ok(Recorded {
            name: "cc1plus",
            words: [
                &path,
                "-fpreprocessed",
                "-quiet",
                "-O1",
                "-o",
                "/dev/null",
                &plain.display().to_string(),
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: Vec::new(),
        }),
        _ => Err("g++"),
    })
}

fn database(scratch: &Path, scale: f64) -> Result<Maybe> {
    let rows = (60_000.0 * scale).max(1000.0) as u64;
    let script = scratch.join("words.sql");
    let text = format!(
        "CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT, size INT);\n\
         WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
         INSERT INTO words SELECT i, printf('word %d', i * 7919 % {rows}), i % 97 FROM n;\n\
         CREATE INDEX by_word ON words(word);\n\
         SELECT size, count(*), group_concat(upper(word)) FROM words GROUP BY size;\n\
         SELECT count(*) FROM words a JOIN words b ON a.word = lower(b.word);\n"
    );
    fs::write(&script, text).map_err(|error| scratch_failure("a script for sqlite3", error))?;
    let Ok(program) = programs::require("sqlite3", "sqlite3") else {
        return Ok(Err("sqlite3"));
    };
    let read = format!(".read {}", script.display());
    Ok(Ok(Recorded {
        name: "sqlite3",
        words: vec![program.display().to_string(), ":memory:".to_owned(), read],
        environment: Vec::new(),
    }))
}

/// With malloc for all objects: Python's own allocator would hide most calls.
fn interpreter(scale: f64) -> Maybe {
    let rounds = (40.0 * scale).max(1.0) as u64;
    let path = interpreter_itself().ok_or("python3")?;
    let code = format!(
        "import json\nfor n in range({rounds}):\n    \
         data = {{str(i): [i, str(i * n), {{'size': i / 7}}] for i in range(3000)}}\n    \
         json.loads(json.dumps(data))\n"
    );
    Ok(Recorded {
        name: "python3",
        words: vec![
            path.display().to_string(),
            "-S".to_owned(),
            "-c".to_owned(),
            code,
        ],
        environment: vec![("PYTHONMALLOC".to_owned(), "malloc".to_owned())],
    })
}

/// Repeated problems of six pigeons and five holes, for an SMT solver.
pub fn pigeons(rounds: usize) -> String {
    let mut text = String::new();
    for round in 0..rounds {
        text += "(set-logic QF_UFLIA)\n";
        for pigeon in 0..6 {
            let name = format!("pigeon{round}_{pigeon}");
            text +=
                &format!("(declare-const {name} Int)(assert (and (>= {name} 0) (< {name} 5)))\n");
            for other in 0..pigeon {
                text += &format!("(assert (not (= {name} pigeon{round}_{other})))\n");
            }
        }
        text += "(check-sat)(reset)\n";
    }
    text
}

/// The output of a command, one line.
pub fn answer(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problem_has_all_pairs() {
        let text = pigeons(2);
        assert_eq!(text.matches("(assert (not").count(), 2 * 15);
        assert_eq!(text.matches("(check-sat)").count(), 2);
    }
}
