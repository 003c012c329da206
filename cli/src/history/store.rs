//! The database of checked runs: one SQLite file, one table, a row a run.
//!
//! Writers at the same time wait for each other by SQLite's own locks, up to `PATIENCE`. A crash during a
//! write leaves the file as it was before. A file that is not such a database is refused and not
//! changed. Reading takes memory for the runs of one name only.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_base::failure::{Failure, Result};
use larder_base::printable;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use serde::Serialize;

use super::origin::{Machine, Revision};
use crate::check::figures::{Figure, Figures};

pub const DEFAULT: &str = ".larder/history.db";

const PATIENCE: Duration = Duration::from_secs(10);
/// Marks the file as a history: "LRDH".
const APPLICATION_ID: i64 = 0x4c52_4448;
const VERSION: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        at_unix_s INTEGER NOT NULL,
        name TEXT NOT NULL,
        commit_id TEXT NOT NULL,
        dirty INTEGER NOT NULL,
        within INTEGER NOT NULL,
        allocations INTEGER NOT NULL,
        peak_bytes INTEGER NOT NULL,
        total_bytes INTEGER NOT NULL,
        leaked_blocks INTEGER NOT NULL,
        leaked_bytes INTEGER NOT NULL,
        tiny INTEGER NOT NULL,
        wall_ns INTEGER,
        cpu_ns INTEGER,
        machine TEXT NOT NULL,
        processor TEXT NOT NULL,
        cores INTEGER NOT NULL,
        kernel TEXT NOT NULL,
        larder TEXT NOT NULL
    ) STRICT;
    CREATE INDEX runs_by_name ON runs (name, id);";

/// Where a run is to be stored, and for which commit.
#[derive(Clone, Debug)]
pub struct Kept {
    pub database: PathBuf,
    /// `None`: git's current commit.
    pub commit: Option<String>,
}

/// A stored run.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub id: i64,
    pub at_unix_s: i64,
    /// The same time as text, UTC.
    pub at: String,
    pub name: String,
    /// Empty if unknown.
    pub commit: String,
    pub dirty: bool,
    pub within: bool,
    #[serde(serialize_with = "by_key")]
    pub figures: Figures,
    pub wall_ns: Option<i64>,
    pub cpu_ns: Option<i64>,
    pub machine: String,
    pub processor: String,
    pub cores: i64,
    pub kernel: String,
    pub larder: String,
}

fn by_key<S: serde::Serializer>(
    figures: &Figures,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(
        Figure::ALL
            .iter()
            .map(|figure| (figure.key(), figures.get(*figure))),
    )
}

/// Stores a run, with wall and CPU time unless it is read from a trace.
pub fn keep(
    kept: &Kept,
    name: &str,
    within: bool,
    figures: &Figures,
    times: Option<(Duration, Duration)>,
) -> Result<()> {
    let path = &kept.database;
    let revision = match &kept.commit {
        Some(id) => Revision {
            id: id.clone(),
            dirty: false,
        },
        None => Revision::of_current_directory(),
    };
    make_folder(path)?;
    let mut connection = open(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )?;
    let machine = Machine::examine();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let number = |figure| i64::try_from(figures.get(figure)).unwrap_or(i64::MAX);
    let write = || -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "INSERT INTO runs (at_unix_s, name, commit_id, dirty, within, allocations, peak_bytes,
             total_bytes, leaked_blocks, leaked_bytes, tiny, wall_ns, cpu_ns, machine, processor,
             cores, kernel, larder)
             VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            params![
                now.map_or(0, |now| now.as_secs() as i64),
                name,
                revision.id,
                revision.dirty,
                within,
                number(Figure::Allocations),
                number(Figure::PeakBytes),
                number(Figure::TotalBytes),
                number(Figure::LeakedBlocks),
                number(Figure::LeakedBytes),
                number(Figure::Tiny),
                times.map(|(wall, _)| ns(wall)),
                times.map(|(_, cpu)| ns(cpu)),
                machine.id,
                machine.processor,
                machine.cores,
                machine.kernel,
                env!("CARGO_PKG_VERSION"),
            ],
        )?;
        transaction.commit()
    };
    write().map_err(|error| failed(path, &error))
}

/// The names of the budgets, with their numbers of runs.
pub fn names(path: &Path) -> Result<Vec<(String, i64)>> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let rows = || -> rusqlite::Result<Vec<(String, i64)>> {
        connection
            .prepare("SELECT name, count(*) FROM runs GROUP BY name ORDER BY name")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    };
    rows().map_err(|error| failed(path, &error))
}

/// The last runs of a name, the oldest first.
pub fn read(path: &Path, name: &str, most: u32) -> Result<Vec<Entry>> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let rows = || -> rusqlite::Result<Vec<Entry>> {
        let mut found: Vec<Entry> = connection
            .prepare(
                "SELECT *, strftime('%Y-%m-%d %H:%M', at_unix_s, 'unixepoch') AS at
             FROM runs WHERE name = ? ORDER BY id DESC LIMIT ?",
            )?
            .query_map(params![name, most], entry)?
            .collect::<rusqlite::Result<_>>()?;
        found.reverse();
        Ok(found)
    };
    rows().map_err(|error| failed(path, &error))
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let mut figures = Figures::default();
    for figure in Figure::ALL {
        let number: i64 = row.get(figure.key())?;
        figures.set(figure, u64::try_from(number).unwrap_or(0));
    }
    Ok(Entry {
        id: row.get("id")?,
        at_unix_s: row.get("at_unix_s")?,
        at: row.get::<_, Option<String>>("at")?.unwrap_or_default(),
        name: row.get("name")?,
        commit: row.get("commit_id")?,
        dirty: row.get("dirty")?,
        within: row.get("within")?,
        figures,
        wall_ns: row.get("wall_ns")?,
        cpu_ns: row.get("cpu_ns")?,
        machine: row.get("machine")?,
        processor: row.get("processor")?,
        cores: row.get("cores")?,
        kernel: row.get("kernel")?,
        larder: row.get("larder")?,
    })
}

fn make_folder(path: &Path) -> Result<()> {
    let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::failed(format!(
            "{}: cannot be made: {}: name another database with --db, or give --no-history",
            printable::name(folder),
            larder_base::target::reason(&error)
        ))
    })
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let writes = flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
    // SQLite would wait for the writer of a FIFO, and open a name like `file:` as a URI.
    match larder_base::regular::open_regular(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && writes => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::failed(format!(
                "{}: there is no history yet: `larder check` makes it",
                printable::name(path)
            )));
        }
        Err(error) => {
            return Err(Failure::failed(format!(
                "{}: {}: name another database with --db",
                printable::name(path),
                larder_base::target::reason(&error)
            )));
        }
    }
    let opened = || -> rusqlite::Result<(Connection, bool)> {
        let mut connection =
            Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        let ours = prepare(&mut connection, writes)?;
        Ok((connection, ours))
    };
    match opened() {
        Ok((connection, true)) => Ok(connection),
        Ok((_, false)) => Err(Failure::failed(format!(
            "{}: a database, but not a history of this version of Larder: name another with --db",
            printable::name(path)
        ))),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Makes the table in an empty database. Returns whether the database is a history.
fn prepare(connection: &mut Connection, writes: bool) -> rusqlite::Result<bool> {
    let is_ours = |connection: &Connection| -> rusqlite::Result<bool> {
        let number =
            |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok(number("application_id")? == APPLICATION_ID && number("user_version")? == VERSION)
    };
    if is_ours(connection)? {
        return Ok(true);
    }
    if !writes {
        return Ok(false);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have made it meanwhile.
    if is_ours(&transaction)? {
        return Ok(true);
    }
    let other: Option<String> = transaction
        .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| {
            row.get(0)
        })
        .optional()?;
    if other.is_some() {
        return Ok(false);
    }
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(true)
}

fn failed(path: &Path, error: &rusqlite::Error) -> Failure {
    use rusqlite::ErrorCode;
    let remedy = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "not a database: name another with --db",
        Some(ErrorCode::DatabaseCorrupt) => {
            "damaged: restore it, or move it away so that the next check makes another"
        }
        Some(ErrorCode::DiskFull) => "no space left on the device: make room for it",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process has written to it for ten seconds: try again later"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "cannot be opened for writing: name another with --db, or give --no-history"
        }
        _ => "cannot be used: name another with --db",
    };
    let detail = error.to_string();
    let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure::failed(format!(
        "{}: {remedy} ({})",
        printable::name(path),
        printable::escape(&detail)
    ))
}
