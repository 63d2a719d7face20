//! Changes to a body at a few places; all else stays byte for byte.

/// Replaces `length` bytes at `offset` by `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub offset: usize,
    pub length: usize,
    pub bytes: Vec<u8>,
}

/// Edits in order of their places, none touching another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

impl Edits {
    pub fn push(&mut self, edit: Edit) {
        let at = self.0.partition_point(|earlier| earlier.offset <= edit.offset);
        self.0.insert(at, edit);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the last edit ends: only the bytes before it need to be written again.
    pub fn end(&self) -> usize {
        self.0.last().map_or(0, |edit| edit.offset.saturating_add(edit.length))
    }

    /// The length that a body of `length` bytes has afterwards.
    pub fn new_length(&self, length: usize) -> usize {
        self.0
            .iter()
            .fold(length, |sum, edit| sum.saturating_sub(edit.length).saturating_add(edit.bytes.len()))
    }

    /// Rewrites the prefix that ends at [`end`](Self::end); `None` when it is shorter than the edits say.
    pub fn apply(&self, prefix: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.new_length(prefix.len()));
        let mut from = 0;
        for edit in &self.0 {
            out.extend_from_slice(prefix.get(from..edit.offset)?);
            out.extend_from_slice(&edit.bytes);
            from = edit.offset.checked_add(edit.length)?;
        }
        out.extend_from_slice(prefix.get(from..)?);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_in_order_of_place() {
        let mut edits = Edits::default();
        edits.push(Edit { offset: 7, length: 3, bytes: b"XY".to_vec() });
        edits.push(Edit { offset: 1, length: 0, bytes: b"__".to_vec() });
        assert_eq!(edits.end(), 10);
        assert_eq!(edits.apply(b"0123456789").as_deref(), Some(b"0__123456XY".as_slice()));
        assert_eq!(edits.new_length(20), 21);
        assert_eq!(edits.apply(b"0123"), None);
    }
}
