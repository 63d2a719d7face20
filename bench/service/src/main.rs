//! What the quota service costs beside the bare scripts on the same Redis. A benchmark, not a test: it judges
//! nothing, and another machine gives other numbers. See docs/service-speed.md.

mod bench;
mod callers;
mod load;
mod memory;
mod numbers;
mod others;
mod policy;
mod recorded;
mod redis_server;
mod report;
mod scale;
mod service;
mod speed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench::{Bench, Way, over_http};
use callers::hold;
use others::Others;
use policy::{KINDS, Kind};
use redis_server::RedisServer;
use report::{Report, machine, said_by};
use service::Service;
use speed::{Cell, Effort, Population, Rounds, Slice, cell, pairs_in_a_block};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Tenants of the speed tables.
const TENANTS: usize = 64;
const CALLERS: [usize; 3] = [1, 16, 64];
/// Cores that other programs may take before the numbers are marked as disturbed.
const BUSY: f64 = 0.1;

struct Arguments {
    service: PathBuf,
    update: Option<PathBuf>,
    quick: bool,
}

fn arguments() -> Outcome<Arguments> {
    let (mut service, mut update, mut quick) = (None, None, false);
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--service") => service = words.next().map(PathBuf::from),
            Some("--update") => update = words.next().map(PathBuf::from),
            Some("--quick") => quick = true,
            _ => return Err("bench-service --service BINARY [--quick] [--update FILE]".into()),
        }
    }
    Ok(Arguments { service: service.ok_or("--service BINARY is missing")?, update, quick })
}

fn main() -> Outcome<()> {
    let arguments = arguments()?;
    // One thread: the load must not take the cores from what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let since = Instant::now();
    let binary = arguments.service.as_path();
    let effort = |rounds, slice_ms| Effort { rounds, slice: Duration::from_millis(slice_ms) };
    let (effort, copies, most) =
        if arguments.quick { (effort(2, 30), 1_000, 10_000) } else { (effort(7, 300), 20_000, 1_000_000) };
    let server = RedisServer::start()?;
    let mut redis = server.connect().await?;
    let others = Others::watch(&mut redis).await?;
    let mut report = Report::default();
    beginning(&mut report, &server, arguments, effort).await?;

    let mut speeds = Vec::new();
    let mut memories = Vec::new();
    for limits in [1, 2, 4, 6] {
        let mut bench = Bench::start(&server, binary, &KINDS[..limits]).await?;
        speeds.push((
            limits.to_string(),
            speed(&mut bench, &[Way::Raw, Way::Store, Way::Service], effort).await?,
        ));
        memories.push((format!("the first {limits}"), memory::memory(&mut bench, copies).await?));
        note(&speeds, &bench);
    }
    let mut by_kind = Vec::new();
    for kind in KINDS.chunks(1) {
        let mut bench = Bench::start(&server, binary, kind).await?;
        by_kind.push((kind[0].name.to_owned(), speed(&mut bench, &[Way::Raw, Way::Service], effort).await?));
        memories.push((kind[0].name.to_owned(), memory::memory(&mut bench, copies).await?));
        note(&by_kind, &bench);
    }
    let names = KINDS.map(|Kind { name, .. }| name).join(", ");
    report.line(format!("\nSeveral limits are the first of: {names}."));
    write_speeds(&mut report, "by number of limits", "limits", &speeds);
    write_speeds(&mut report, "one limit, by algorithm", "algorithm", &by_kind);

    report.head(
        "Service with its memory store, 4 limits",
        &["clients", "pairs/s", "reserve p50, ms", "p99", "pair p50, ms", "p99", "CPU per pair, µs"],
    );
    for callers in CALLERS {
        report.in_memory(callers, &in_memory(binary, callers, effort).await?);
    }

    report.head("Bytes in Redis", &["limits", "all idle buckets of a tenant", "open hold", "tombstone"]);
    for (name, memory) in &memories {
        report.memory(name, memory);
    }

    report.head(
        "Many buckets: a sliding and a fixed window for each tenant",
        &[
            "buckets",
            "bytes per bucket",
            "clients",
            "scripts, pairs/s",
            "service",
            "reserve p50, ms: scripts",
            "service",
            "service p99",
            "Redis CPU per pair, µs",
        ],
    );
    let mut bench = Bench::start(&server, binary, &KINDS[..2]).await?;
    for buckets in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|buckets| *buckets <= most) {
        let effort = Effort { rounds: 3.min(effort.rounds), ..effort };
        report.scale(&scale::scale(&mut bench, 2, buckets, effort).await?);
    }
    drop(bench);
    ending(&mut report, others.cores(&mut redis).await?, arguments, since);
    if let Some(page) = &arguments.update {
        report.update(page)?;
    }
    Ok(())
}

async fn beginning(
    report: &mut Report,
    server: &RedisServer,
    arguments: &Arguments,
    effort: Effort,
) -> Outcome<()> {
    let redis = redis_server::version(&mut server.connect().await?).await?;
    let service = said_by(&arguments.service.to_string_lossy(), &["--version"]);
    let (date, rust) = (said_by("date", &["-u", "+%-d %B %Y, %H:%M UTC"]), said_by("rustc", &["--version"]));
    let (rounds, slice_ms) = (effort.rounds, effort.slice.as_millis());
    report.line(format!("Measured {date}: {}, Redis {redis}, {service}, {rust};", machine()));
    report.line(format!("{rounds} rounds of {slice_ms} ms for each way."));
    Ok(())
}

fn ending(report: &mut Report, others: f64, arguments: &Arguments, since: Instant) {
    let mut text = String::new();
    if arguments.quick {
        text += "**A quick run, which only shows that it works.** ";
    }
    if others > BUSY {
        text += "**A busy machine: do not rely on these numbers.** ";
    }
    let seconds = since.elapsed().as_secs();
    text += &format!("Other programs took {others:.2} cores while this was measured, in {seconds} s.");
    report.foreword(&text);
}

async fn speed(bench: &mut Bench, ways: &[Way], effort: Effort) -> Outcome<Vec<Cell>> {
    let tenants: Vec<usize> = (0..TENANTS).collect();
    let recordings = bench.recordings(&tenants)?;
    let population = Population { tenants: &tenants, recordings: &recordings, emptied: true };
    let mut cells = Vec::new();
    for callers in CALLERS {
        cells.push(cell(bench, ways, callers, &population, effort).await?);
    }
    Ok(cells)
}

type Named = (String, Vec<Cell>);

fn write_speeds(report: &mut Report, title: &str, first: &str, speeds: &[Named]) {
    report.speed_head(&format!("Pairs per second, {title}"), first);
    for (name, cells) in speeds {
        cells.iter().for_each(|cell| report.speed(name, cell));
    }
    report.cpu_head(&format!("CPU per pair, µs, {title}"), first);
    for (name, cells) in speeds {
        cells.iter().for_each(|cell| report.cpu(name, cell));
    }
    report.latency_head(&format!("Latency, {title}"), first);
    for (name, cells) in speeds {
        cells.iter().for_each(|cell| report.latency(name, cell));
    }
}

/// That it goes on, for whoever waits; and what the service complained of.
fn note(done: &[Named], bench: &Bench) {
    if let Some((name, _)) = done.last() {
        eprintln!("measured: {name}");
    }
    // Emptying the server looks like an accident, and is none.
    for line in
        bench.service.log().lines().filter(|line| line.contains("ERROR") && !line.contains("store_wiped"))
    {
        eprintln!("{line}");
    }
}

async fn in_memory(binary: &Path, callers: usize, effort: Effort) -> Outcome<Rounds> {
    let yaml = policy::yaml(&KINDS[..4]);
    let policy = policy::parse(&yaml)?;
    let service = Service::start(binary, &yaml, None)?;
    let http = service.connect(2).await?;
    let tenants: Vec<usize> = (0..TENANTS).collect();
    let mut ids = callers::Ids::default();
    let mut rounds = Rounds::default();
    for _ in 0..=effort.rounds {
        let mut slice = Slice::default();
        let before = service.cpu_us()?;
        while slice.wall() < effort.slice {
            let holds = (0..pairs_in_a_block(callers))
                .map(|number| hold(&policy, ids.next(), number % TENANTS))
                .collect::<Outcome<Vec<_>>>()?;
            let (reserve, settle) = over_http(&http, callers, &tenants, &holds).await?;
            slice.add(&reserve, &settle, 0.0);
        }
        slice.used_service_cpu(service.cpu_us()? - before);
        rounds.push(slice);
    }
    rounds.forget_first();
    Ok(rounds)
}
