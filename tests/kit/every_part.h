/* What C and C++ compile alike: every part, used once. Its includer defines USE_EVERY_PART, the
 * name of the function, which returns the line of the first part that fails, or 0. */
#include <larder/kit/arena.h>
#include <larder/kit/buffer.h>
#include <larder/kit/bytes.h>
#include <larder/kit/hash.h>
#include <larder/kit/intern.h>
#include <larder/kit/list.h>
#include <larder/kit/number.h>
#include <larder/kit/pool.h>
#include <larder/kit/small_array.h>
#include <larder/kit/text.h>

#define EXPECT(condition) \
  do {                    \
    if (!(condition)) {   \
      return __LINE__;    \
    }                     \
  } while (0)

LARDER_SMALL_ARRAY(small_ints, int, 4);

typedef struct every_item {
  int key;
  larder_list_node in_list;
  larder_hash_node in_hash;
} every_item;

static larder_bool every_same_key(const larder_hash_node* node, const void* key) {
  return LARDER_HASH_ENTRY(node, every_item, in_hash)->key == *(const int*)key;
}

static int every_linked_part(void) {
  larder_pool pool;
  larder_list list;
  larder_hash hash;
  larder_pool_init(&pool, sizeof(every_item));
  larder_list_init(&list);
  larder_hash_init(&hash);
  for (int i = 0; i < 100; i++) {
    every_item* item = (every_item*)larder_pool_get(&pool);
    EXPECT(item != NULL);
    item->key = i;
    larder_list_push_back(&list, &item->in_list);
    EXPECT(larder_hash_insert(&hash, &item->in_hash, larder_hash_bytes(&i, sizeof i, 0)));
  }
  int sum = 0;
  LARDER_LIST_FOR_EACH(node, &list) {
    every_item* item = LARDER_LIST_ENTRY(node, every_item, in_list);
    uint64_t hashed = larder_hash_bytes(&item->key, sizeof item->key, 0);
    EXPECT(larder_hash_find(&hash, hashed, every_same_key, &item->key) == &item->in_hash);
    sum += item->key;
    larder_list_remove(node);
    larder_hash_remove(&hash, &item->in_hash);
    larder_pool_put(&pool, item);
  }
  EXPECT(sum == 4950 && larder_list_is_empty(&list) && hash.count == 0);
  larder_hash_release(&hash);
  larder_pool_release(&pool);
  return 0;
}

static int every_text_part(void) {
  char number[LARDER_NUMBER_BYTES];
  larder_bytes bytes;
  larder_text key, value;
  larder_intern names;
  larder_arena arena;
  int64_t read = 0;
  larder_bytes_init(&bytes);
  EXPECT(larder_bytes_append(&bytes, "year = ", 7));
  EXPECT(larder_bytes_append(&bytes, number, larder_number_write_int64(number, -1984)));
  larder_text line = larder_text_of(larder_bytes_c_string(&bytes));
  EXPECT(larder_text_cut(line, LARDER_TEXT("="), &key, &value));
  EXPECT(larder_text_to_int64(larder_text_trim(value), 10, &read) && read == -1984);
  key = larder_text_trim(key);
  larder_intern_init(&names, 1);
  const char* name = larder_intern_add(&names, key.data, key.size);
  EXPECT(name != NULL && name == larder_intern_add(&names, "year", 4));
  larder_arena_init(&arena, 100);
  char* copy = larder_arena_copy(&arena, name, larder_intern_size(name));
  EXPECT(copy != NULL && strcmp(copy, "year") == 0);
  larder_number_write_double(number, 0.1);
  EXPECT(strcmp(number, "0.1") == 0);
  larder_arena_release(&arena);
  larder_intern_release(&names);
  larder_bytes_release(&bytes);
  return 0;
}

static int every_array_part(void) {
  small_ints ints;
  larder_buffer buffer, front;
  small_ints_init(&ints);
  for (int i = 0; i < 10; i++) {
    EXPECT(small_ints_push(&ints, i));
  }
  EXPECT(ints.count == 10 && ints.data[9] == 9 && small_ints_pop(&ints) == 9);
  small_ints_release(&ints);
  larder_buffer_init(&buffer, LARDER_BUFFER_THREADS);
  EXPECT(larder_buffer_append(&buffer, "first second", 12));
  larder_buffer_split_front(&buffer, 6, &front);
  EXPECT(front.size == 6 && buffer.size == 6 && memcmp(buffer.data, "second", 6) == 0);
  larder_buffer_release(&buffer);
  larder_buffer_release(&front);
  return 0;
}

int USE_EVERY_PART(void) {
  int failed = every_linked_part();
  failed = failed != 0 ? failed : every_text_part();
  return failed != 0 ? failed : every_array_part();
}
