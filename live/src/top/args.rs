//! The command line of `larder top`, and its check.

use std::time::Duration;

use clap::Args;
use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::subject::RawCharging;

use super::columns::Column;

pub const EXAMPLES: &str = "\
Examples:
  larder top $(pgrep -o redis-server)
      A screen. q ends it, ? lists the other keys.
  larder top 1234 --skip 'z*alloc*'
      Charge the callers of the program's own allocation functions.
  larder top 1234 --once
      One table of what happens in two seconds.
  larder top 1234 -n 60 -d 10 --sort growth > growth.txt
      A table every ten seconds, for ten minutes.
  larder top 1234 --json | jq -c '[.rss, .total.growth]'
      One line every two seconds, until the process ends.

The process keeps running; it is not stopped. Its memory is read: you have to be its user and,
where kernel.yama.ptrace_scope is not 0, root.

Exit codes: 0, also if the process ends while it is watched; 125 the tool failed, or the
process cannot be read.";

/// Sites in a table, unless said otherwise.
const DEFAULT_TOP: usize = 20;

#[derive(Debug, Args)]
pub struct RawTop {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    process: u32,
    /// Seconds between two snapshots
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    interval: Duration,
    /// Print COUNT tables, one for each interval, instead of a screen [default, if stdout is no
    /// terminal: until the process ends]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    count: Option<u32>,
    /// Print one table: the same as -n 1
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// What sites are ranked by
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "in-use")]
    sort: Column,
    /// Only sites whose name or place contains this; case does not matter
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    #[command(flatten)]
    charging: RawCharging,
    /// Show threads' heaps instead of sites; on the screen, at the start
    #[arg(long)]
    threads: bool,
    /// Sites in a table, 0 for all [default: 20; with --json all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top: Option<usize>,
    /// Print JSON instead of tables, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug)]
pub struct TopPlan {
    pub process: u32,
    pub interval: Duration,
    /// `None`: until the process ends.
    pub count: Option<u32>,
    pub sort: Column,
    pub filter: String,
    pub charging: Charging,
    pub threads: bool,
    pub most_sites: usize,
    pub json: bool,
}

impl RawTop {
    pub fn check(self) -> larder_base::failure::Result<TopPlan> {
        Ok(TopPlan {
            process: self.process,
            interval: self.interval,
            count: if self.once { Some(1) } else { self.count },
            sort: self.sort,
            filter: self.filter,
            charging: self.charging.check()?,
            threads: self.threads,
            most_sites: match self.top {
                Some(0) => usize::MAX,
                Some(top) => top,
                None if self.json => usize::MAX,
                None => DEFAULT_TOP,
            },
            json: self.json,
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number".to_owned())?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("give 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "", "2s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
