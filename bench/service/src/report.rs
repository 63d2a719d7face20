//! The tables, as markdown.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::bench::Way;
use crate::memory::Memory;
use crate::numbers::{count, median, ms, spread};
use crate::scale::Scale;
use crate::speed::{Cell, Rounds};

const BEGIN: &str = "<!-- bench-service -->";
const END: &str = "<!-- end of bench-service -->";

#[derive(Default)]
pub struct Report(String);

impl Report {
    pub fn line(&mut self, text: impl AsRef<str>) {
        println!("{}", text.as_ref());
        self.0 += text.as_ref();
        self.0.push('\n');
    }

    /// What is known last and read first.
    pub fn foreword(&mut self, text: &str) {
        println!("\n{text}");
        self.0.insert_str(0, &format!("{text}\n"));
    }

    fn row(&mut self, cells: &[String]) {
        self.line(format!("| {} |", cells.join(" | ")));
    }

    pub fn head(&mut self, title: &str, columns: &[&str]) {
        self.line(format!("\n## {title}\n"));
        self.line(format!("| {} |", columns.join(" | ")));
        self.line(format!("|{}", "---|".repeat(columns.len())));
    }

    pub fn speed_head(&mut self, title: &str, first: &str) {
        let columns =
            [first, "clients", "scripts", "store", "service", "store ÷ scripts", "service ÷ scripts"];
        self.head(title, &columns);
    }

    pub fn speed(&mut self, name: &str, cell: &Cell) {
        let rate = |way| or_none(&cell.of(way).pairs_per_second(), |rates| count(median(rates)));
        let ratio = |way| or_none(&cell.ratios(way), spread);
        self.row(&[
            name.to_owned(),
            cell.callers.to_string(),
            rate(Way::Raw),
            rate(Way::Store),
            rate(Way::Service),
            ratio(Way::Store),
            ratio(Way::Service),
        ]);
    }

    pub fn cpu_head(&mut self, title: &str, first: &str) {
        let columns = [
            first,
            "clients",
            "Redis: scripts",
            "store",
            "service",
            "service ÷ scripts",
            "the service itself",
            "the load: scripts",
            "service",
            "cores in use: scripts",
            "service",
        ];
        self.head(title, &columns);
    }

    pub fn cpu(&mut self, name: &str, cell: &Cell) {
        let (raw, store, service) = (cell.of(Way::Raw), cell.of(Way::Store), cell.of(Way::Service));
        let us = |us: f64| if us.is_nan() { "–".to_owned() } else { format!("{us:.1}") };
        self.row(&[
            name.to_owned(),
            cell.callers.to_string(),
            us(raw.redis_cpu_us()),
            us(store.redis_cpu_us()),
            us(service.redis_cpu_us()),
            format!("{:.2}", service.redis_cpu_us() / raw.redis_cpu_us()),
            us(service.service_cpu_us()),
            us(raw.load_cpu_us()),
            us(service.load_cpu_us()),
            us(raw.cores(false)),
            us(service.cores(true)),
        ]);
    }

    pub fn latency_head(&mut self, title: &str, first: &str) {
        let columns = [
            first,
            "clients",
            "reserve p50, ms: scripts",
            "service",
            "added",
            "p99: scripts",
            "service",
            "pair p50, ms: scripts",
            "service",
            "p99: scripts",
            "service",
        ];
        self.head(title, &columns);
    }

    pub fn latency(&mut self, name: &str, cell: &Cell) {
        let (raw, service) = (cell.of(Way::Raw), cell.of(Way::Service));
        self.row(&[
            name.to_owned(),
            cell.callers.to_string(),
            ms(raw.reserve_us(0.5)),
            ms(service.reserve_us(0.5)),
            ms(service.reserve_us(0.5) - raw.reserve_us(0.5)),
            ms(raw.reserve_us(0.99)),
            ms(service.reserve_us(0.99)),
            ms(raw.pair_us(0.5)),
            ms(service.pair_us(0.5)),
            ms(raw.pair_us(0.99)),
            ms(service.pair_us(0.99)),
        ]);
    }

    pub fn in_memory(&mut self, callers: usize, rounds: &Rounds) {
        self.row(&[
            callers.to_string(),
            count(median(&rounds.pairs_per_second())),
            ms(rounds.reserve_us(0.5)),
            ms(rounds.reserve_us(0.99)),
            ms(rounds.pair_us(0.5)),
            ms(rounds.pair_us(0.99)),
            format!("{:.1}", rounds.service_cpu_us()),
        ]);
    }

    pub fn memory(&mut self, name: &str, memory: &Memory) {
        let bytes = [memory.buckets, memory.open_hold, memory.tombstone];
        let mut cells = vec![name.to_owned()];
        cells.extend(bytes.map(count));
        self.row(&cells);
    }

    pub fn scale(&mut self, scale: &Scale) {
        for cell in &scale.cells {
            let (raw, service) = (cell.of(Way::Raw), cell.of(Way::Service));
            self.row(&[
                count(scale.buckets as f64),
                count(scale.bytes_per_bucket),
                cell.callers.to_string(),
                count(median(&raw.pairs_per_second())),
                count(median(&service.pairs_per_second())),
                ms(raw.reserve_us(0.5)),
                ms(service.reserve_us(0.5)),
                ms(service.reserve_us(0.99)),
                format!("{:.1}", service.redis_cpu_us()),
            ]);
        }
    }

    /// Puts the tables between the marks of a page.
    pub fn update(&self, page: &Path) -> Outcome<()> {
        let text = fs::read_to_string(page)?;
        let missing = || format!("{} lacks {BEGIN} or {END}", page.display());
        let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
        let (_, after) = rest.split_once(END).ok_or_else(missing)?;
        Ok(fs::write(page, format!("{before}{BEGIN}\n{}{END}{after}", self.0))?)
    }
}

/// A dash where a way was not measured.
fn or_none(values: &[f64], text: impl Fn(&[f64]) -> String) -> String {
    if values.is_empty() { "–".to_owned() } else { text(values) }
}

/// The first line that a command says.
pub fn said_by(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_owned()
}

/// Cores and their model.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model);
    format!("{cores} cores of {model}")
}
