//! What the readers of symbols, of debug information and of machine code are asked to do with hostile
//! bytes: by the fuzzer, and by the tests with seeded mutations.

use larder_analysis::symbols::loops::FunctionCode;
use larder_analysis::symbols::{DebugRoots, ModuleSymbols};

/// Of the addresses of the seeds, which are small.
const STEP: u64 = 61;
const END: u64 = 0x5000;

/// Loads these bytes as a module, and looks up addresses in and around it.
pub fn read(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("module");
    std::fs::write(&path, bytes).expect("a file");
    let roots = DebugRoots {
        system: folder.path().to_owned(),
        debuginfod_cache: None,
        debuginfod: None,
    };
    let symbols = ModuleSymbols::load(&path, &[], &roots);
    let _ = symbols.types();
    for address in (0..END).step_by(STEP as usize).chain([u64::MAX, 1 << 63]) {
        let frames = symbols.frames(address);
        assert!(
            frames.iter().all(|frame| frame.line != Some(0)),
            "{frames:?}"
        );
        if let Some((start, bytes)) = symbols.extent(address) {
            assert!(
                start <= address && address - start < bytes,
                "{start:#x} {bytes}"
            );
        }
        if let Some((start, code)) = symbols.code(address) {
            assert!(start <= address, "{start:#x}");
            let _ = FunctionCode::new(code, start).around(address, true);
        }
        let _ = symbols.data(address);
    }
}
