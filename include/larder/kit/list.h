/* An intrusive doubly linked list: the links are a member of your structure, so that no operation
 * allocates or fails.
 *
 *   struct job { int number; larder_list_node link; };
 *   larder_list_push_back(&jobs, &job->link);
 *   LARDER_LIST_FOR_EACH(node, &jobs) { use(LARDER_LIST_ENTRY(node, struct job, link)); }
 *
 * The list owns nothing: a node belongs to the caller and must stay where it is while it is linked;
 * so must the list. One thread at a time may use a list and its nodes. Every function is O(1).
 *
 * Invariants: node->next->previous == node == node->previous->next, for the head, too;
 * a node that is in no list has next == previous == NULL.
 */
#ifndef LARDER_KIT_LIST_H
#define LARDER_KIT_LIST_H

#include <stddef.h>

#include "memory.h"

typedef struct larder_list_node {
  struct larder_list_node* next;
  struct larder_list_node* previous;
} larder_list_node;

/* The head stands before the first node and behind the last one. */
typedef struct larder_list {
  larder_list_node head;
} larder_list;

/* The structure that a node is a member of; not of a null pointer. */
#define LARDER_LIST_ENTRY(node, type, member) LARDER_KIT_ENTRY(node, type, member)

/* From first to last. The body may remove `node`, and no other. */
#define LARDER_LIST_FOR_EACH(node, list)                                             \
  for (larder_list_node* node = (list)->head.next, *node##_following = (node)->next; \
       (node) != &(list)->head; (node) = node##_following, node##_following = (node)->next)

/* Before all other functions. */
static inline void larder_list_init(larder_list* list) {
  list->head.next = list->head.previous = &list->head;
}

static inline void larder_list_node_init(larder_list_node* node) {
  node->next = node->previous = NULL;
}

/* Of a node that larder_list_node_init() or a list has seen. */
static inline larder_bool larder_list_is_linked(const larder_list_node* node) {
  return node->next != NULL;
}

static inline larder_bool larder_list_is_empty(const larder_list* list) {
  return list->head.next == &list->head;
}

/* These four give NULL where the list has no such node. */
static inline larder_list_node* larder_list_front(const larder_list* list) {
  return larder_list_is_empty(list) ? NULL : list->head.next;
}

static inline larder_list_node* larder_list_back(const larder_list* list) {
  return larder_list_is_empty(list) ? NULL : list->head.previous;
}

static inline larder_list_node* larder_list_next(const larder_list* list,
                                                 const larder_list_node* node) {
  return node->next == &list->head ? NULL : node->next;
}

static inline larder_list_node* larder_list_previous(const larder_list* list,
                                                     const larder_list_node* node) {
  return node->previous == &list->head ? NULL : node->previous;
}

/* `node` is in no list. `position` is in one. */
static inline void larder_list_insert_before(larder_list_node* position, larder_list_node* node) {
  node->next = position;
  node->previous = position->previous;
  position->previous->next = node;
  position->previous = node;
}

static inline void larder_list_insert_after(larder_list_node* position, larder_list_node* node) {
  larder_list_insert_before(position->next, node);
}

static inline void larder_list_push_front(larder_list* list, larder_list_node* node) {
  larder_list_insert_after(&list->head, node);
}

static inline void larder_list_push_back(larder_list* list, larder_list_node* node) {
  larder_list_insert_before(&list->head, node);
}

/* `node` is in a list. */
static inline void larder_list_remove(larder_list_node* node) {
  node->previous->next = node->next;
  node->next->previous = node->previous;
  larder_list_node_init(node);
}

/* The removed node; NULL if the list is empty. */
static inline larder_list_node* larder_list_pop_front(larder_list* list) {
  larder_list_node* node = larder_list_front(list);
  if (node != NULL) {
    larder_list_remove(node);
  }
  return node;
}

static inline larder_list_node* larder_list_pop_back(larder_list* list) {
  larder_list_node* node = larder_list_back(list);
  if (node != NULL) {
    larder_list_remove(node);
  }
  return node;
}

/* Moves all nodes of `from`, another list, to the end of `list`. */
static inline void larder_list_splice_back(larder_list* list, larder_list* from) {
  if (larder_list_is_empty(from)) {
    return;
  }
  larder_list_node* first = from->head.next;
  larder_list_node* last = from->head.previous;
  first->previous = list->head.previous;
  last->next = &list->head;
  list->head.previous->next = first;
  list->head.previous = last;
  larder_list_init(from);
}

#endif
