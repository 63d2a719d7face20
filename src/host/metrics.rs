//! Counters, a gauge and histograms. The ABI knows no labels, so a label is part of the name, the model last;
//! `stats_tags` in Envoy's bootstrap makes labels of them again. Metrics are never freed: every value comes
//! from a fixed list, but for models, of which there is a bound.

use std::cell::{Cell, RefCell};

use hashbrown::{HashMap, HashSet};
use tokengate_api::{ExtendStatus, SettleStatus};

use super::abi::{self, MetricKind};
use crate::stream::Failure;
use crate::stream::report::Measure;

/// Models that have metrics of their own; all others share one name.
const MAX_MODELS: usize = 256;
const LONGEST_MODEL: usize = 64;

#[derive(Default)]
pub struct Metrics {
    ids: RefCell<HashMap<String, u32>>,
    models: RefCell<HashSet<String>>,
    outbox_settles: Cell<i64>,
    outbox_releases: Cell<i64>,
}

impl Metrics {
    pub fn measure(&self, measure: &Measure) {
        match measure {
            Measure::Decision { decision, model } => {
                let model = self.model(model);
                self.add(&format!("requests_decision={decision}_dialect=openai_model={model}"), 1);
            }
            Measure::BodyRefused { member } => self.add(&format!("body_refusals_member={member}"), 1),
            Measure::FallbackCount => self.add("fallback_counts", 1),
            Measure::ReserveFailed(failure) => {
                let cause = match failure {
                    Failure::Connection => "connection",
                    Failure::Deadline => "deadline",
                    Failure::Unusable => "unusable",
                };
                self.add(&format!("reserve_failures_cause={cause}"), 1);
            }
            Measure::Degraded { by } => self.add(&format!("degraded_by={by}"), 1),
            Measure::Held { model, prompt, output } => {
                let model = self.model(model);
                self.add(&format!("held_tokens_class=prompt_model={model}"), *prompt);
                self.add(&format!("held_tokens_class=output_model={model}"), *output);
            }
            Measure::UnboundedOutput { model } => self.add_for("unbounded_output", model),
            Measure::Stopped { model } => self.add_for("streams_stopped", model),
            Measure::UsageMissing { model } => self.add_for("usage_missing", model),
            Measure::UsageMismatch { model } => self.add_for("usage_mismatch", model),
            Measure::OtherModel { model } => self.add_for("answers_by_other_models", model),
            Measure::Settled { model, outcome, usage } => {
                let model = self.model(model);
                self.add(&format!("settles_outcome={outcome}_model={model}"), 1);
                for (class, tokens) in [
                    ("input", usage.input),
                    ("cache_read", usage.cache_read),
                    ("cache_write", usage.cache_write),
                    ("output", usage.output),
                    ("reasoning", usage.reasoning),
                ] {
                    self.add(&format!("settled_tokens_class={class}_model={model}"), tokens);
                }
            }
        }
    }

    /// From the reserve's first try to its answer.
    pub fn reserve_took(&self, microseconds: u64) {
        self.record("reserve_us", microseconds);
    }

    /// All that a request took on the worker until it was reserved: parsing and counting above all.
    pub fn counting_took(&self, microseconds: u64) {
        self.record("counting_us", microseconds);
    }

    pub fn tokenizer_loaded(&self, encoding: &str) {
        self.add(&format!("tokenizer_loads_encoding={encoding}"), 1);
    }

    pub fn settles_sent(&self, first: u64, again: u64) {
        self.add("settles_sent", first);
        self.add("settles_retried", again);
    }

    /// Holds that were asked to be more.
    pub fn extend_answered(&self, status: ExtendStatus) {
        let status = match status {
            ExtendStatus::Allow => "allow",
            ExtendStatus::Deny => "deny",
            ExtendStatus::Unknown => "unknown",
        };
        self.add(&format!("extend_answers_status={status}"), 1);
    }

    pub fn settles_dropped(&self, count: u64) {
        self.add("settles_dropped", count);
    }

    pub fn releases_dropped(&self, count: u64) {
        self.add("releases_dropped", count);
    }

    /// Holds that the service no longer knew, settled again so that their use is booked.
    pub fn settles_rebooked(&self, count: u64) {
        self.add("settles_rebooked", count);
    }

    /// `known`, `unknown`, `unasked` (the service is older than the question) or `failed`.
    pub fn identify_answered(&self, status: &str) {
        self.add(&format!("identify_answers_status={status}"), 1);
    }

    pub fn settle_answered(&self, status: SettleStatus) {
        let status = match status {
            SettleStatus::Settled => "settled",
            SettleStatus::AlreadySettled => "already_settled",
            SettleStatus::Booked => "booked",
            SettleStatus::Late => "late",
            SettleStatus::Unknown => "unknown",
        };
        self.add(&format!("settle_answers_status={status}"), 1);
    }

    /// All outboxes of the process are one gauge for each class, so each only adds its own change.
    pub fn outbox_depth(&self, settles: usize, releases: usize) {
        for (name, last, items) in [
            ("outbox_items", &self.outbox_settles, settles),
            ("outbox_releases", &self.outbox_releases, releases),
        ] {
            let now = i64::try_from(items).unwrap_or(i64::MAX);
            let change = now.saturating_sub(last.replace(now));
            if let Some(id) = self.id(MetricKind::Gauge, name) {
                abi::increment(id, change);
            }
        }
    }

    fn add_for(&self, name: &str, model: &str) {
        self.add(&format!("{name}_model={}", self.model(model)), 1);
    }

    fn add(&self, name: &str, amount: u64) {
        if amount > 0
            && let Some(id) = self.id(MetricKind::Counter, name)
        {
            abi::increment(id, i64::try_from(amount).unwrap_or(i64::MAX));
        }
    }

    fn record(&self, name: &str, value: u64) {
        if let Some(id) = self.id(MetricKind::Histogram, name) {
            abi::record(id, value);
        }
    }

    fn id(&self, kind: MetricKind, name: &str) -> Option<u32> {
        let mut ids = self.ids.borrow_mut();
        if let Some(id) = ids.get(name) {
            return Some(*id);
        }
        let id = abi::define_metric(kind, &format!("tokengate_{name}"))?;
        ids.insert(name.to_owned(), id);
        Some(id)
    }

    /// A model's name as it may stand in a metric's.
    fn model(&self, name: &str) -> String {
        let keeps = |c: char| c.is_ascii_alphanumeric() || "-._/:@".contains(c);
        let label: String =
            name.chars().take(LONGEST_MODEL).map(|c| if keeps(c) { c } else { '-' }).collect();
        let mut models = self.models.borrow_mut();
        if models.contains(&label) {
            return label;
        }
        if models.len() >= MAX_MODELS {
            return "other".to_owned();
        }
        models.insert(label.clone());
        label
    }
}
