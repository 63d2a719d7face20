//! A queue in which owners take turns: however much one has waiting, another's waits for one of it at a time.

use std::collections::VecDeque;

/// `K` names an owner.
pub struct Turns<K, T> {
    /// Owners in the order of their turns, none of them twice and none without an item.
    owners: VecDeque<(K, VecDeque<T>)>,
    len: usize,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { owners: VecDeque::new(), len: 0 }
    }
}

impl<K: PartialEq, T> Turns<K, T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, owner: K, item: T) {
        self.len += 1;
        match self.owners.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, items)) => items.push_back(item),
            None => self.owners.push_back((owner, VecDeque::from([item]))),
        }
    }

    pub fn pop(&mut self) -> Option<(K, T)>
    where
        K: Clone,
    {
        let (owner, mut items) = self.owners.pop_front()?;
        let item = items.pop_front()?;
        self.len -= 1;
        if !items.is_empty() {
            self.owners.push_back((owner.clone(), items));
        }
        Some((owner, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns() {
        let mut turns = Turns::default();
        for n in 0..3 {
            turns.push('a', n);
        }
        turns.push('b', 10);
        turns.push('c', 20);
        turns.push('c', 21);
        assert_eq!(turns.len(), 6);
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [('a', 0), ('b', 10), ('c', 20), ('a', 1), ('c', 21), ('a', 2)]);
        assert!(turns.is_empty());
    }

    #[test]
    fn an_item_that_comes_back_waits_behind_the_others() {
        let mut turns = Turns::default();
        for n in 0..30 {
            turns.push('a', n);
        }
        turns.push('b', 99);
        let mut served = Vec::new();
        for _ in 0..4 {
            if let Some((owner, item)) = turns.pop() {
                served.push(owner);
                turns.push(owner, item);
            }
        }
        assert_eq!(served, ['a', 'b', 'a', 'b']);
    }
}
