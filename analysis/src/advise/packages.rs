//! The packages of Rust, as far as paths of sources and names of types tell them apart. A function has no influence
//! on what another package's function allocates, nor on its types.

use super::facts::Site;
use crate::reading::resolve::ChainFrame;

/// The folder of the package that a function is in.
pub fn package(frame: &ChainFrame) -> Option<&str> {
    let file = frame.source.file.as_deref();
    let file = file.filter(|file| file.ends_with(".rs"))?;
    file.get(..file.rfind("/src/").or_else(|| file.rfind('/'))?)
}

/// Whether it is a dependency.
pub fn is_fetched(package: &str) -> bool {
    let places = ["/registry/src/", "/git/checkouts/", "/vendor/"];
    places.iter().any(|place| package.contains(place))
}

/// Whether the line is a dependency's and the function of another package: the function has the result, and no
/// influence on the allocation.
pub fn is_elsewhere(site: &Site, function: &ChainFrame) -> bool {
    let line = site.site_frame().and_then(package);
    line.is_some_and(|line| is_fetched(line) && package(function) != Some(line))
}

/// Whether a function of the line's own package ends the object that has it: that can keep the object.
pub fn ends_at_home(site: &Site) -> bool {
    const DROP: &str = "core::ops::drop::Drop>::drop";
    let line = site.site_frame().and_then(package);
    let owner = site.owner.iter();
    let frees = owner.flat_map(|owner| owner.frees.iter().take(owner.frees_frame.unwrap_or(0)));
    let mut functions = frees.flat_map(|frames| frames.iter());
    line.is_some()
        && site.is_part()
        && functions.any(|frame| {
            let function = frame.source.function.as_ref();
            let drops = function.is_some_and(|function| function.full.ends_with(DROP));
            !drops && package(frame) == line
        })
}

/// Whether a dependency drops it as a part of another package's object, which alone can hold it in another way.
pub fn is_of_another(site: &Site) -> bool {
    let owner = site.owner.as_ref();
    let frames = owner.and_then(|owner| site.chain.get(owner.frame));
    let drops = frames.and_then(|frames| package(frames.last()?));
    let part_of = site.part_of();
    let drops = drops.filter(|package| is_fetched(package)).map(crate_of);
    drops.zip(part_of).is_some_and(|(drops, object)| {
        let (of_object, _) = object.split_once("::").unwrap_or((object, ""));
        drops != of_object
    })
}

/// `serde_json` of `…/serde-json-1.0.1`.
fn crate_of(package: &str) -> String {
    let name = package.rsplit('/').next().unwrap_or(package);
    let is_version = |(at, _): &(usize, &str)| {
        let next = name.as_bytes().get(at + 1);
        next.is_some_and(u8::is_ascii_digit)
    };
    let end = name.match_indices('-').find(is_version);
    name[..end.map_or(name.len(), |(at, _)| at)].replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_name_of_its_crate() {
        for (folder, expected) in [
            ("/home/a/registry/src/index/serde-json-1.0.1", "serde_json"),
            ("/home/a/vendor/idna", "idna"),
            ("/home/a/registry/src/index/sha-1-0.10.0", "sha"),
            ("x-1.0.0-rc.1+y", "x"),
        ] {
            assert_eq!(crate_of(folder), expected);
        }
    }
}
