//! Where the server listens: a socket in the file system for its user alone, or a port of this machine.
//!
//! A path that exists is refused, except a socket of the same user that no process listens on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Path(PathBuf),
    /// A port of the loopback interface.
    Port(SocketAddr),
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MOST: usize = 107;
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err("there is no path"),
                1..=MOST => Ok(Self::Path(path.into())),
                _ => Err("a socket's path has up to 107 characters"),
            };
        }
        let address = text.parse::<SocketAddr>().ok();
        let address = address.filter(|address| address.ip().is_loopback() && address.port() != 0);
        address
            .map(Self::Port)
            .ok_or("give unix:PATH, 127.0.0.1:PORT or [::1]:PORT")
    }
}

/// The listening socket. Dropping it removes its file.
pub struct Listener {
    pub socket: Socket,
    /// The file, and its device and inode, by which it is known to be this socket's.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    pub fn open(place: &Place) -> io::Result<Self> {
        match place {
            Place::Port(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
                socket.set_reuse_address(true)?;
                Ok(Self {
                    socket: listening(socket, &(*address).into())?,
                    file: None,
                })
            }
            Place::Path(path) => {
                let address = SockAddr::unix(path)?;
                let folder = hold_folder_of(path);
                let socket = match listen_in_files(&address) {
                    Err(error)
                        if is_taken(&error) && folder.is_some() && is_dead(path, &address) =>
                    {
                        std::fs::remove_file(path)?;
                        listen_in_files(&address)?
                    }
                    other => other?,
                };
                let file = id(path).map(|id| (path.clone(), id));
                Ok(Self { socket, file })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, own)) = &self.file
            && id(path) == Some(*own)
        {
            // The file may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A lock against processes that start at the same place at the same time, so that a socket between
/// bind and listen is not taken for stale. `None`: the lock was not free within a second.
fn hold_folder_of(path: &Path) -> Option<OwnedFd> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(_) => return None,
        }
    }
}

fn listen_in_files(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file is made with the socket's mode.
    rustix::fs::fchmod(socket.as_fd(), Mode::from_raw_mode(0o600))?;
    listening(socket, address)
}

fn listening(socket: Socket, address: &SockAddr) -> io::Result<Socket> {
    socket.bind(address)?;
    socket.listen(64)?;
    Ok(socket)
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Whether it is a socket of this user that no process listens on.
fn is_dead(path: &Path, address: &SockAddr) -> bool {
    let own = path.symlink_metadata().is_ok_and(|file| {
        file.file_type().is_socket() && file.uid() == rustix::process::geteuid().as_raw()
    });
    let connects = || Socket::new(Domain::UNIX, Type::STREAM, None)?.connect(address);
    own && connects().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn id(path: &Path) -> Option<(u64, u64)> {
    let file = path.symlink_metadata().ok()?;
    file.file_type()
        .is_socket()
        .then(|| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_this_machine_can_be_listened_at() {
        for good in ["127.0.0.1:6070", "[::1]:1", "unix:/x"] {
            assert!(good.parse::<Place>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "unix:",
            "0.0.0.0:80",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "localhost:80",
            "[::]:80",
            "192.168.0.1:80",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
        assert!(
            format!("unix:{}", "x".repeat(108))
                .parse::<Place>()
                .is_err()
        );
    }

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let place = Place::Path(path.clone());
        let first = Listener::open(&place).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(is_taken(&Listener::open(&place).err().unwrap()));
        // A process that was killed leaves such a socket.
        let mut first = first;
        first.file = None;
        drop(first);
        assert!(path.exists());
        drop(Listener::open(&place).unwrap());
        assert!(!path.exists());
        for (what, make) in [
            (
                "file",
                (|path| std::fs::write(path, "mine")) as fn(&Path) -> io::Result<()>,
            ),
            ("link", |path| std::os::unix::fs::symlink("elsewhere", path)),
            ("folder", |path| std::fs::create_dir(path)),
        ] {
            let path = folder.path().join(what);
            make(&path).unwrap();
            assert!(
                Listener::open(&Place::Path(path.clone())).is_err(),
                "{what}"
            );
            assert!(path.symlink_metadata().is_ok(), "{what}");
        }
    }

    #[test]
    fn what_has_taken_the_name_since_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::open(&Place::Path(path.clone())).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        drop(listener);
        assert!(path.exists());
    }
}
