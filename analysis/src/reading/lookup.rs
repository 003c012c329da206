//! Where names and sources come from, and how names are shown: the options of the commands that show
//! them.

use std::sync::Arc;

use clap::Args;
use larder_base::failure::Result;
use larder_base::printable::escape;

use crate::error::AnalysisError;
use crate::symbols::debuginfod::Debuginfod;
use crate::symbols::source::SourcePath;

/// The checked options.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    /// Names keep all template arguments.
    pub full_names: bool,
    pub sources: SourcePath,
    /// The lines around sites are shown.
    pub shows_source: bool,
    pub debuginfod: Option<Arc<Debuginfod>>,
}

#[derive(Debug, Args)]
pub struct RawNames {
    /// Show names with all template arguments: not std::string, but what it stands for
    #[arg(long)]
    full_names: bool,
}

impl RawNames {
    pub fn check(&self) -> Lookup {
        Lookup {
            full_names: self.full_names,
            ..Lookup::default()
        }
    }
}

#[derive(Debug, Args)]
pub struct RawDebuginfod {
    /// Ask this debuginfod server for debug information and sources that are not on this machine; ''
    /// asks none [default: those in DEBUGINFOD_URLS]
    #[arg(long, value_name = "URL")]
    debuginfod: Option<String>,
}

impl RawDebuginfod {
    pub fn check(&self, lookup: &mut Lookup) -> Result<()> {
        let requested = self.debuginfod.as_deref();
        let mut urls = requested.into_iter().flat_map(str::split_whitespace);
        if let Some(url) = urls.find(|url| !url.contains("://")) {
            let fault = format!(
                "--debuginfod '{}': begin it with https:// or http://",
                escape(url)
            );
            return Err(AnalysisError::usage(fault).into());
        }
        lookup.debuginfod = Debuginfod::new(requested).map(Arc::new);
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct RawSource {
    /// Where sources are: a folder, below which the longest end of each path is looked for, or FROM=TO,
    /// which replaces the beginning of paths; may be repeated
    #[arg(long, value_name = "DIR|FROM=TO[:…]")]
    source_path: Vec<String>,
    /// Do not show the source around sites
    #[arg(long)]
    no_source: bool,
}

impl RawSource {
    pub fn check(&self, lookup: &mut Lookup) -> Result<()> {
        lookup.sources = SourcePath::parse(&self.source_path).map_err(AnalysisError::usage)?;
        lookup.shows_source = !self.no_source;
        Ok(())
    }

    /// The options, and whether they were given.
    pub fn given(&self) -> [(&'static str, bool); 2] {
        [
            ("--source-path", !self.source_path.is_empty()),
            ("--no-source", self.no_source),
        ]
    }
}
